"""The first quarter of q's and k's channels is rotated.

After: transformers, models/gpt_neox, apply_rotary_pos_emb with rotary_pct 0.25. Edits: before.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    size = cos.shape[-1]
    rot, rest = x[..., :size], x[..., size:]
    half = size // 2
    other = torch.cat((-rot[..., half:], rot[..., :half]), dim=-1)
    return torch.cat((rot * cos + other * sin, rest), dim=-1)


def attention(
    q: Float[Tensor, "B H N 64"],
    k: Float[Tensor, "B H N 64"],
    v: Float[Tensor, "B H N 64"],
    cos: Float[Tensor, "1 1 N 16"],
    sin: Float[Tensor, "1 1 N 16"],
) -> Float[Tensor, "B H N 64"]:
    q, k = turned(q, cos, sin), turned(k, cos, sin)
    n = q.shape[2]
    causal = torch.ones(n, n, dtype=torch.bool, device=q.device).tril()
    scores = torch.where(causal, q @ k.mT * 64**-0.5, torch.finfo(q.dtype).min)
    return torch.softmax(scores.float(), -1).to(q.dtype) @ v
