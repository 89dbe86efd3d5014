"""Key importance: after softmax every weight is multiplied by the key's own importance."""

# ruff: noqa: F722
import torch
from jaxtyping import Float, Float32
from torch import Tensor


def attention(
    q: Float[Tensor, "B Hq Nq D"],
    k: Float[Tensor, "B Hkv Nk D"],
    v: Float[Tensor, "B Hkv Nk D"],
    importance: Float32[Tensor, "B Nk"],
) -> Float[Tensor, "B Hq Nq D"]:
    group = q.size(1) // k.size(1)
    k = k.repeat_interleave(group, dim=1)
    v = v.repeat_interleave(group, dim=1)
    scores = (q @ k.transpose(-2, -1)).float() * q.size(-1) ** -0.5
    weights = torch.softmax(scores, dim=-1) * importance[:, None, None, :]
    return weights.to(q.dtype) @ v
