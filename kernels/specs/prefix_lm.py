"""Prefix-LM: the prefix is seen by every query, the rest causally; keep(i, j) = j < prefix or j <= i.

Top-left: query 0 stands at key 0, whatever Nq and Nk.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B Hq Nq D"],
    k: Float[Tensor, "B Hkv Nk D"],
    v: Float[Tensor, "B Hkv Nk D"],
    prefix: int = 256,
) -> Float[Tensor, "B Hq Nq D"]:
    group = q.size(1) // k.size(1)
    k = k.repeat_interleave(group, dim=1)
    v = v.repeat_interleave(group, dim=1)
    scores = (q @ k.transpose(-2, -1)).float() / math.sqrt(q.size(-1))
    causal = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
    in_prefix = torch.arange(k.size(-2), device=q.device) < prefix
    scores = scores.masked_fill(~(causal | in_prefix), float("-inf"))
    return torch.softmax(scores, dim=-1).to(q.dtype) @ v
