"""Rotary embedding of pairs of neighbours in half of the columns.

After: transformers, Glm4Attention. Edits: before, mask.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def rotate_half(x: Tensor) -> Tensor:
    x1 = x[..., 0::2]
    x2 = x[..., 1::2]
    return torch.stack((-x2, x1), dim=-1).flatten(-2)


def attention(
    q: Float[Tensor, "B Hq N 128"],
    k: Float[Tensor, "B Hkv N 128"],
    v: Float[Tensor, "B Hkv N 128"],
    cos: Float[Tensor, "B N 64"],
    sin: Float[Tensor, "B N 64"],
) -> Float[Tensor, "B Hq N 128"]:
    cos = cos[:, None, :, :32].repeat_interleave(2, dim=-1)
    sin = sin[:, None, :, :32].repeat_interleave(2, dim=-1)

    def turn(x: Tensor) -> Tensor:
        rot, rest = x[..., :64], x[..., 64:]
        return torch.cat([rot * cos + rotate_half(rot) * sin, rest], dim=-1)

    return F.scaled_dot_product_attention(turn(q), turn(k), v, is_causal=True, enable_gqa=True)
