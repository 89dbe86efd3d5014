"""Rotary embedding of the tokens behind 226 of a text.

After: diffusers, CogVideoXAttnProcessor2_0. Edits: before.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Float32
from torch import Tensor


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    real, imag = x.reshape(*x.shape[:-1], -1, 2).unbind(-1)
    turned = torch.stack([-imag, real], dim=-1).flatten(3)
    return (x.float() * cos + turned.float() * sin).to(x.dtype)


def attention(
    q: Float[Tensor, "B H N 64"],
    k: Float[Tensor, "B H N 64"],
    v: Float[Tensor, "B H N 64"],
    q_weight: Float[Tensor, "64"],
    k_weight: Float[Tensor, "64"],
    cos: Float32[Tensor, "N 64"],
    sin: Float32[Tensor, "N 64"],
) -> Float[Tensor, "B H N 64"]:
    query = F.layer_norm(q, (64,), q_weight, None, 1e-6)
    key = F.layer_norm(k, (64,), k_weight, None, 1e-6)
    return F.scaled_dot_product_attention(rotated(query, cos, sin), rotated(key, cos, sin), v)
