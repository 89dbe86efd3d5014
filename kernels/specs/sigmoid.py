"""Sigmoid attention: O = sum_j sigmoid(q k^T / sqrt(D) - ln Nk) v_j, rows are not normalised.

The bias -ln Nk keeps the weights of a row near one in sum (Ramapuram et al., 2024).
"""

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
    return torch.sigmoid(scores - math.log(k.size(-2))).to(q.dtype) @ v
