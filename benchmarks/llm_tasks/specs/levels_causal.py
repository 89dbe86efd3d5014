"""Causal attention over tokens with levels: four inputs in one mask, of rows, keys and heads."""

# ruff: noqa: F722, F821
import torch
from jaxtyping import Bool, Float, Int32
from torch import Tensor


def attention(
    q: Float[Tensor, "B Hq Nq D"],
    k: Float[Tensor, "B Hkv Nk D"],
    v: Float[Tensor, "B Hkv Nk D"],
    row_level: Int32[Tensor, "B Nq"],
    key_level: Int32[Tensor, "B Nk"],
    valid: Bool[Tensor, "B Nk"],
    sees_all: Bool[Tensor, "Hq"],
) -> Float[Tensor, "B Hq Nq D"]:
    group = q.size(1) // k.size(1)
    k = k.repeat_interleave(group, dim=1)
    v = v.repeat_interleave(group, dim=1)
    n_q, n_k = q.size(-2), k.size(-2)
    scores = (q @ k.transpose(-2, -1)).float() * q.size(-1) ** -0.5
    i = torch.arange(n_q, device=q.device)[:, None] + (n_k - n_q)
    j = torch.arange(n_k, device=q.device)[None, :]
    below = key_level[:, None, None, :] <= row_level[:, None, :, None]
    keep = (j <= i) & valid[:, None, None, :] & (below | sees_all[None, :, None, None])
    scores = scores.masked_fill(~keep, float("-inf"))
    return torch.softmax(scores, dim=-1).to(q.dtype) @ v
