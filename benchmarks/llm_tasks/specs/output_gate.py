"""Gated output: each element of O is multiplied by the sigmoid of a gate."""

# ruff: noqa: F722
import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B Hq Nq D"],
    k: Float[Tensor, "B Hkv Nk D"],
    v: Float[Tensor, "B Hkv Nk D"],
    gate: Float[Tensor, "B Hq Nq D"],
) -> Float[Tensor, "B Hq Nq D"]:
    group = q.size(1) // k.size(1)
    k = k.repeat_interleave(group, dim=1)
    v = v.repeat_interleave(group, dim=1)
    scores = (q @ k.transpose(-2, -1)).float() * q.size(-1) ** -0.5
    o = torch.softmax(scores, dim=-1).to(q.dtype) @ v
    return o * torch.sigmoid(gate.float()).to(q.dtype)
