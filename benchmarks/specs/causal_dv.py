"""Causal attention with V of another head size (MLA prefill: Dqk 192, Dv 128).

The last query sees every key: keep(i, j) = j <= i + Nk - Nq.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B Hq Nq D"],
    k: Float[Tensor, "B Hkv Nk D"],
    v: Float[Tensor, "B Hkv Nk Dv"],
) -> Float[Tensor, "B Hq Nq Dv"]:
    group = q.size(1) // k.size(1)
    k = k.repeat_interleave(group, dim=1)
    v = v.repeat_interleave(group, dim=1)
    n_q, n_k = q.size(-2), k.size(-2)
    scores = (q @ k.transpose(-2, -1)).float() / math.sqrt(q.size(-1))
    future = torch.ones(n_q, n_k, dtype=torch.bool, device=q.device).triu(n_k - n_q + 1)
    scores = scores.masked_fill(future, float("-inf"))
    return torch.softmax(scores, dim=-1).to(q.dtype) @ v
