"""Global tokens and a sliding window: the first `n_global` tokens see all and are seen by all.

keep(i, j) = -left <= j - p <= right, or p < n_global, or j < n_global, with p = i + Nk - Nq; both
bounds of the window are inclusive.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B Hq Nq D"],
    k: Float[Tensor, "B Hkv Nk D"],
    v: Float[Tensor, "B Hkv Nk D"],
    left: int = 256,
    right: int = 256,
    n_global: int = 16,
) -> Float[Tensor, "B Hq Nq D"]:
    group = q.size(1) // k.size(1)
    k = k.repeat_interleave(group, dim=1)
    v = v.repeat_interleave(group, dim=1)
    n_q, n_k = q.size(-2), k.size(-2)
    i = torch.arange(n_q, device=q.device)[:, None] + n_k - n_q
    j = torch.arange(n_k, device=q.device)[None, :]
    window = (j >= i - left) & (j <= i + right)
    keep = window | (i < n_global) | (j < n_global)
    scores = (q @ k.transpose(-2, -1)).float() / math.sqrt(q.size(-1))
    scores = scores.masked_fill(~keep, float("-inf"))
    return torch.softmax(scores, dim=-1).to(q.dtype) @ v
