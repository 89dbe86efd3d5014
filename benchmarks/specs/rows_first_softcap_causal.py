"""Causal attention with logit softcapping of tensors whose rows come before their heads."""

import math

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B N Hq D"],
    k: Float[Tensor, "B N Hq D"],
    v: Float[Tensor, "B N Hq D"],
    softcap: float = 2.0,
) -> Float[Tensor, "B N Hq D"]:
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    n = q.size(-2)
    scores = (q @ k.transpose(-2, -1)).float() / math.sqrt(q.size(-1))
    scores = softcap * torch.tanh(scores / softcap)
    later = torch.ones(n, n, dtype=torch.bool, device=q.device).triu(1)
    scores = scores.masked_fill(later, float("-inf"))
    return (torch.softmax(scores, dim=-1).to(q.dtype) @ v).transpose(1, 2)
