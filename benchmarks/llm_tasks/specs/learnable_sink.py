"""Learnable sink: one more logit per head takes its share of every row and gives nothing."""

# ruff: noqa: F722, F821
import torch
from jaxtyping import Float, Float32
from torch import Tensor


def attention(
    q: Float[Tensor, "B Hq Nq D"],
    k: Float[Tensor, "B Hkv Nk D"],
    v: Float[Tensor, "B Hkv Nk D"],
    sink: Float32[Tensor, "Hq"],
) -> Float[Tensor, "B Hq Nq D"]:
    group = q.size(1) // k.size(1)
    k = k.repeat_interleave(group, dim=1)
    v = v.repeat_interleave(group, dim=1)
    scores = (q @ k.transpose(-2, -1)).float() * q.size(-1) ** -0.5
    column = sink[None, :, None, None].to(scores.dtype).expand(q.size(0), -1, q.size(2), 1)
    weights = torch.softmax(torch.cat([scores, column], dim=-1), dim=-1)[..., :-1]
    return weights.to(q.dtype) @ v
