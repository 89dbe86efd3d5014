"""A learned bias by relative position, as T5 has it without buckets: s + table[h, clamp(j - i)]."""

import math

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B Hq Nq D"],
    k: Float[Tensor, "B Hkv Nk D"],
    v: Float[Tensor, "B Hkv Nk D"],
    table: Float[Tensor, "Hq 257"],
) -> Float[Tensor, "B Hq Nq D"]:
    group = q.size(1) // k.size(1)
    k = k.repeat_interleave(group, dim=1)
    v = v.repeat_interleave(group, dim=1)
    scores = (q @ k.transpose(-2, -1)).float() / math.sqrt(q.size(-1))
    i = torch.arange(q.size(-2), device=q.device)[:, None]
    j = torch.arange(k.size(-2), device=q.device)[None, :]
    scores = scores + table.float()[:, (j - i).clamp(-128, 128) + 128]
    return torch.softmax(scores, dim=-1).to(q.dtype) @ v
