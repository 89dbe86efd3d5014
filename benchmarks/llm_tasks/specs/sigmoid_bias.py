"""Sigmoid attention with a bias per head: O = sum_j sigmoid(s + bias_h) v_j, not normalised."""

# ruff: noqa: F722, F821
import torch
from jaxtyping import Float, Float32
from torch import Tensor


def attention(
    q: Float[Tensor, "B Hq Nq D"],
    k: Float[Tensor, "B Hkv Nk D"],
    v: Float[Tensor, "B Hkv Nk D"],
    bias: Float32[Tensor, "Hq"],
) -> Float[Tensor, "B Hq Nq D"]:
    group = q.size(1) // k.size(1)
    k = k.repeat_interleave(group, dim=1)
    v = v.repeat_interleave(group, dim=1)
    scores = (q @ k.transpose(-2, -1)).float() * q.size(-1) ** -0.5
    return torch.sigmoid(scores + bias[None, :, None, None]).to(q.dtype) @ v
