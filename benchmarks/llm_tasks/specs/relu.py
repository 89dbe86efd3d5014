"""ReLU attention: O = sum_j max(s, 0) v_j / Nk."""

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
    return (torch.relu(scores) / k.size(-2)).to(q.dtype) @ v
