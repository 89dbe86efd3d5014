"""Causal attention whose output has a factor per head, with the log-sum-exp in base 2 beside it."""

# ruff: noqa: F722, F821
import math

import torch
from jaxtyping import Float, Float32
from torch import Tensor


def attention(
    q: Float[Tensor, "B Hq Nq D"],
    k: Float[Tensor, "B Hkv Nk D"],
    v: Float[Tensor, "B Hkv Nk D"],
    factor: Float32[Tensor, "Hq"],
) -> tuple[Float[Tensor, "B Hq Nq D"], Float32[Tensor, "B Hq Nq"]]:
    group = q.size(1) // k.size(1)
    k = k.repeat_interleave(group, dim=1)
    v = v.repeat_interleave(group, dim=1)
    n_q, n_k = q.size(-2), k.size(-2)
    scores = (q @ k.transpose(-2, -1)).float() * q.size(-1) ** -0.5
    i = torch.arange(n_q, device=q.device)[:, None] + (n_k - n_q)
    j = torch.arange(n_k, device=q.device)[None, :]
    scores = scores.masked_fill(j > i, float("-inf"))
    out = torch.softmax(scores, dim=-1) @ v.float() * factor[:, None, None]
    return out.to(q.dtype), torch.logsumexp(scores, dim=-1) * math.log2(math.e)
