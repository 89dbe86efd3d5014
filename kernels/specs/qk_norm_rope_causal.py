"""Causal attention as in Qwen 3 and Gemma 3: queries and keys are RMS-normalised over each head's
columns, multiplied by a learned weight per column, then rotated by their positions' angles, whose
cosines and sines are given. Gemma's weights count from 1.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return (wide * (1.0 + weight.float())).to(x.dtype)


def rotate_half(x: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def attention(
    q: Float[Tensor, "B Hq N D"],
    k: Float[Tensor, "B Hkv N D"],
    v: Float[Tensor, "B Hkv N D"],
    q_weight: Float[Tensor, "D"],
    k_weight: Float[Tensor, "D"],
    cos: Float[Tensor, "N D"],
    sin: Float[Tensor, "N D"],
    eps: float = 1e-6,
) -> Float[Tensor, "B Hq N D"]:
    q, k = rms_norm(q, q_weight, eps), rms_norm(k, k_weight, eps)
    q = q * cos + rotate_half(q) * sin
    k = k * cos + rotate_half(k) * sin
    group = q.size(1) // k.size(1)
    k = k.repeat_interleave(group, dim=1)
    v = v.repeat_interleave(group, dim=1)
    n = q.size(-2)
    scores = (q @ k.transpose(-2, -1)).float() * q.size(-1) ** -0.5
    i = torch.arange(n, device=q.device)
    scores = scores.masked_fill(i[None, :] > i[:, None], float("-inf"))
    return torch.softmax(scores, dim=-1).to(q.dtype) @ v
