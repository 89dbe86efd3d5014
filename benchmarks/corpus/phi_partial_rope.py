"""Rotary embedding of the first 32 columns, the rest passed on.

After: transformers, PhiAttention. Edits: before, mask.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def rotate_half(x: Tensor) -> Tensor:
    x1 = x[..., : x.shape[-1] // 2]
    x2 = x[..., x.shape[-1] // 2 :]
    return torch.cat((-x2, x1), dim=-1)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    rot, rest = x[..., :32], x[..., 32:]
    return torch.cat((rot * cos + rotate_half(rot) * sin, rest), dim=-1)


def attention(
    q: Float[Tensor, "B H N 80"],
    k: Float[Tensor, "B H N 80"],
    v: Float[Tensor, "B H N 80"],
    cos: Float[Tensor, "B N 32"],
    sin: Float[Tensor, "B N 32"],
) -> Float[Tensor, "B H N 80"]:
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    query, key = rotated(q, cos, sin), rotated(k, cos, sin)
    weights = query @ key.transpose(-1, -2) * 80**-0.5
    n = q.shape[2]
    causal = torch.full((n, n), torch.finfo(q.dtype).min, device=q.device).triu(1)
    return F.softmax(weights + causal, dim=-1, dtype=torch.float32).to(q.dtype) @ v
