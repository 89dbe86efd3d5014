"""Causal sliding window, as in Mistral: each query sees itself and the window - 1 keys before it.

keep(i, j) = p - window < j <= p with p = i + Nk - Nq (bottom-right), so exactly `window` keys.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B Hq Nq D"],
    k: Float[Tensor, "B Hkv Nk D"],
    v: Float[Tensor, "B Hkv Nk D"],
    window: int = 1024,
) -> Float[Tensor, "B Hq Nq D"]:
    group = q.size(1) // k.size(1)
    k = k.repeat_interleave(group, dim=1)
    v = v.repeat_interleave(group, dim=1)
    n_q, n_k = q.size(-2), k.size(-2)
    scores = (q @ k.transpose(-2, -1)).float() / math.sqrt(q.size(-1))
    position = torch.arange(n_k - n_q, n_k, device=q.device)[:, None]
    key = torch.arange(n_k, device=q.device)[None, :]
    keep = (key <= position) & (position - key < window)
    scores = torch.where(keep, scores, float("-inf"))
    return torch.softmax(scores, dim=-1).to(q.dtype) @ v
