"""Causal attention with a gate on its output, as in Qwen3-Next: out = attention * sigmoid(gate).

The gate is a projection of the layer's input, one number per element of the output, and stands in the
layout that projections have: rows before heads. Causal, bottom-right: j <= i + Nk - Nq.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B Hq Nq D"],
    k: Float[Tensor, "B Hkv Nk D"],
    v: Float[Tensor, "B Hkv Nk D"],
    gate: Float[Tensor, "B Nq Hq D"],
) -> Float[Tensor, "B Nq Hq D"]:
    group = q.size(1) // k.size(1)
    k = k.repeat_interleave(group, dim=1)
    v = v.repeat_interleave(group, dim=1)
    n_q, n_k = q.size(-2), k.size(-2)
    scores = (q @ k.transpose(-2, -1)).float() / math.sqrt(q.size(-1))
    i = torch.arange(n_q, device=q.device)[:, None] + (n_k - n_q)
    j = torch.arange(n_k, device=q.device)[None, :]
    scores = scores.masked_fill(j > i, float("-inf"))
    out = torch.softmax(scores, dim=-1).to(q.dtype) @ v
    return out.transpose(1, 2) * torch.sigmoid(gate)
