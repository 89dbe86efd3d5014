"""Relative position bias: a learnt value per head and distance, clipped at `reach`; causal."""

# ruff: noqa: F722
import torch
from jaxtyping import Float, Float32
from torch import Tensor


def attention(
    q: Float[Tensor, "B Hq Nq D"],
    k: Float[Tensor, "B Hkv Nk D"],
    v: Float[Tensor, "B Hkv Nk D"],
    table: Float32[Tensor, "Hq 65"],
    reach: int = 64,
) -> Float[Tensor, "B Hq Nq D"]:
    group = q.size(1) // k.size(1)
    k = k.repeat_interleave(group, dim=1)
    v = v.repeat_interleave(group, dim=1)
    scores = (q @ k.transpose(-2, -1)).float() * q.size(-1) ** -0.5
    n_q, n_k = q.size(-2), k.size(-2)
    i = torch.arange(n_q, device=q.device)[:, None] + (n_k - n_q)
    j = torch.arange(n_k, device=q.device)[None, :]
    distance = (i - j).clamp(0, reach)
    scores = scores + table[:, distance]
    keep = j <= i
    scores = scores.masked_fill(~keep, float("-inf"))
    return torch.softmax(scores, dim=-1).to(q.dtype) @ v
