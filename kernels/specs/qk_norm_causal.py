"""Causal attention of RMS-normalised queries and keys, as in Qwen 3: each head's row is divided by its
root mean square in float32 and multiplied by a learned weight per column, which all heads share.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return weight * wide.to(x.dtype)


def attention(
    q: Float[Tensor, "B Hq Nq D"],
    k: Float[Tensor, "B Hkv Nk D"],
    v: Float[Tensor, "B Hkv Nk D"],
    q_weight: Float[Tensor, "D"],
    k_weight: Float[Tensor, "D"],
    eps: float = 1e-6,
) -> Float[Tensor, "B Hq Nq D"]:
    q, k = rms_norm(q, q_weight, eps), rms_norm(k, k_weight, eps)
    group = q.size(1) // k.size(1)
    k = k.repeat_interleave(group, dim=1)
    v = v.repeat_interleave(group, dim=1)
    n_q, n_k = q.size(-2), k.size(-2)
    scores = (q @ k.transpose(-2, -1)).float() * q.size(-1) ** -0.5
    i = torch.arange(n_q, device=q.device)[:, None] + (n_k - n_q)
    j = torch.arange(n_k, device=q.device)[None, :]
    scores = scores.masked_fill(j > i, float("-inf"))
    return torch.softmax(scores, dim=-1).to(q.dtype) @ v
