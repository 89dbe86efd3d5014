"""Causal attention with rows before heads, one length and one number of heads."""

import math

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B Nq Hq D"],
    k: Float[Tensor, "B Nq Hq D"],
    v: Float[Tensor, "B Nq Hq D"],
) -> Float[Tensor, "B Nq Hq D"]:
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    n = q.size(-2)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    future = torch.ones(n, n, dtype=torch.bool, device=q.device).triu(1)
    weights = torch.softmax(scores.masked_fill(future, float("-inf")), dim=-1)
    return (weights @ v).transpose(1, 2)
