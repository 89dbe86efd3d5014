"""Normalised sigmoid: sigmoid weights divided by their sum over the causal row."""

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
    scores = (q @ k.transpose(-2, -1)).float() * q.size(-1) ** -0.5
    n_q, n_k = q.size(-2), k.size(-2)
    i = torch.arange(n_q, device=q.device)[:, None] + (n_k - n_q)
    j = torch.arange(n_k, device=q.device)[None, :]
    weights = torch.sigmoid(scores).masked_fill(j > i, 0.0)
    total = weights.sum(dim=-1, keepdim=True).clamp(min=1e-20)
    return (weights / total).to(q.dtype) @ v
