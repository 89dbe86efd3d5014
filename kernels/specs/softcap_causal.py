"""Causal attention with logit softcapping, as in Gemma 2: s = c * tanh(q k^T / sqrt(D) / c).

The cap comes after the scale and before the mask. Causal, bottom-right: j <= i + Nk - Nq.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B Hq Nq D"],
    k: Float[Tensor, "B Hkv Nk D"],
    v: Float[Tensor, "B Hkv Nk D"],
    softcap: float = 50.0,
) -> Float[Tensor, "B Hq Nq D"]:
    group = q.size(1) // k.size(1)
    k = k.repeat_interleave(group, dim=1)
    v = v.repeat_interleave(group, dim=1)
    n_q, n_k = q.size(-2), k.size(-2)
    scores = (q @ k.transpose(-2, -1)).float() * q.size(-1) ** -0.5
    scores = softcap * torch.tanh(scores / softcap)
    i = torch.arange(n_q, device=q.device)[:, None] + (n_k - n_q)
    j = torch.arange(n_k, device=q.device)[None, :]
    scores = scores.masked_fill(j > i, float("-inf"))
    return torch.softmax(scores, dim=-1).to(q.dtype) @ v
