"""Causal attention with rotary embedding (Su et al., arXiv 2104.09864), as in Llama: the first half of
the columns is rotated against the second by the angles whose cosines and sines are given.

Self-attention: queries and keys stand at the same positions.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def rotate_half(x: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def attention(
    q: Float[Tensor, "B Hq N D"],
    k: Float[Tensor, "B Hkv N D"],
    v: Float[Tensor, "B Hkv N D"],
    cos: Float[Tensor, "B N D"],
    sin: Float[Tensor, "B N D"],
) -> Float[Tensor, "B Hq N D"]:
    cos, sin = cos[:, None], sin[:, None]
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
