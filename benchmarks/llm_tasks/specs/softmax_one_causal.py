"""Causal attention with one more in the softmax's denominator: a row may attend to nothing."""

# ruff: noqa: F722
import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B Hq Nq D"],
    k: Float[Tensor, "B Hkv Nk D"],
    v: Float[Tensor, "B Hkv Nk D"],
) -> Float[Tensor, "B Hq Nq D"]:
    group = q.size(1) // k.size(1)
    k = k.repeat_interleave(group, dim=1)
    v = v.repeat_interleave(group, dim=1)
    n_q, n_k = q.size(-2), k.size(-2)
    scores = (q @ k.transpose(-2, -1)).float() * q.size(-1) ** -0.5
    i = torch.arange(n_q, device=q.device)[:, None] + (n_k - n_q)
    j = torch.arange(n_k, device=q.device)[None, :]
    scores = scores.masked_fill(j > i, float("-inf"))
    top = scores.amax(dim=-1, keepdim=True).clamp(min=0.0)
    weights = torch.exp(scores - top)
    weights = weights / (weights.sum(dim=-1, keepdim=True) + torch.exp(-top))
    return weights.to(q.dtype) @ v
