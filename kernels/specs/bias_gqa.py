"""Grouped-query attention with an additive bias that all batches share: s = q k^T / sqrt(D) + bias.

Entries of -inf remove a pair.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B Hq Nq D"],
    k: Float[Tensor, "B Hkv Nk D"],
    v: Float[Tensor, "B Hkv Nk D"],
    bias: Float[Tensor, "1 Hq Nq Nk"],
) -> Float[Tensor, "B Hq Nq D"]:
    batch, heads, n_q, d = q.shape
    kv_heads = k.size(1)
    grouped = q.reshape(batch, kv_heads, heads // kv_heads, n_q, d)
    scores = torch.einsum("bhgid,bhjd->bhgij", grouped, k).float() / math.sqrt(d)
    scores = scores + bias.reshape(1, kv_heads, heads // kv_heads, n_q, -1)
    weights = torch.softmax(scores, dim=-1).to(q.dtype)
    return torch.einsum("bhgij,bhjd->bhgid", weights, v).reshape(batch, heads, n_q, d)
