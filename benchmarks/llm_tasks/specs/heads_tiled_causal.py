"""Causal attention whose query head h reads key head h % Hkv: key heads are tiled, not repeated."""

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
    k = k.repeat(1, group, 1, 1)
    v = v.repeat(1, group, 1, 1)
    n_q, n_k = q.size(-2), k.size(-2)
    scores = (q @ k.transpose(-2, -1)).float() * q.size(-1) ** -0.5
    i = torch.arange(n_q, device=q.device)[:, None] + (n_k - n_q)
    j = torch.arange(n_k, device=q.device)[None, :]
    scores = scores.masked_fill(j > i, float("-inf"))
    return torch.softmax(scores, dim=-1).to(q.dtype) @ v
