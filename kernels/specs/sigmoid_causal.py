"""Causal sigmoid attention, bottom-right: removed keys weigh exactly 0, rows are not normalised.

O = sum_j sigmoid(q k^T / sqrt(D) + bias) v_j over j <= i + Nk - Nq.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B Hq Nq D"],
    k: Float[Tensor, "B Hkv Nk D"],
    v: Float[Tensor, "B Hkv Nk D"],
    bias: float = -8.0,
) -> Float[Tensor, "B Hq Nq D"]:
    group = q.size(1) // k.size(1)
    k = k.repeat_interleave(group, dim=1)
    v = v.repeat_interleave(group, dim=1)
    n_q, n_k = q.size(-2), k.size(-2)
    scores = (q @ k.transpose(-2, -1)).float() / math.sqrt(q.size(-1)) + bias
    causal = torch.ones(n_q, n_k, dtype=torch.bool, device=q.device).tril(n_k - n_q)
    weights = torch.sigmoid(scores) * causal
    return weights.to(q.dtype) @ v
