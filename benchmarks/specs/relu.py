"""ReLU attention: O = sum_j max(q k^T / sqrt(D), 0) / Nk v_j (Wortsman et al., 2023)."""

import math

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
    scores = (q @ k.transpose(-2, -1)).float() / math.sqrt(q.size(-1))
    return (torch.relu(scores) / k.size(-2)).to(q.dtype) @ v
