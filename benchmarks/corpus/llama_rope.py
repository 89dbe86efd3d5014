"""Rotary embedding of q and k by halves, cos and sin given, then causal attention.

After: transformers, models/llama, apply_rotary_pos_emb. Edits: before.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn


def rotate_half(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def attention(
    q: Float[Tensor, "B H N D"],
    k: Float[Tensor, "B H N D"],
    v: Float[Tensor, "B H N D"],
    cos: Float[Tensor, "B N D"],
    sin: Float[Tensor, "B N D"],
) -> Float[Tensor, "B H N D"]:
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    q = q * cos + rotate_half(q) * sin
    k = k * cos + rotate_half(k) * sin
    n = q.shape[2]
    future = torch.ones(n, n, dtype=torch.bool, device=q.device).triu(1)
    scores = (q @ k.transpose(2, 3)) * q.shape[-1] ** -0.5
    weights = nn.functional.softmax(scores.masked_fill(future, float("-inf")), dim=-1)
    return weights @ v
