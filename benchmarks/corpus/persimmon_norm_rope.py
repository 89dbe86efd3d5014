"""Layer norm with weight and bias, then rotary embedding of half of the columns.

After: transformers, PersimmonAttention. Edits: before, mask.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def rotate_half(x: Tensor) -> Tensor:
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((-x2, x1), dim=-1)


def attention(
    q: Float[Tensor, "B N H 64"],
    k: Float[Tensor, "B N H 64"],
    v: Float[Tensor, "B N H 64"],
    q_weight: Float[Tensor, "64"],
    q_bias: Float[Tensor, "64"],
    k_weight: Float[Tensor, "64"],
    k_bias: Float[Tensor, "64"],
    cos: Float[Tensor, "N 32"],
    sin: Float[Tensor, "N 32"],
) -> Float[Tensor, "B N H 64"]:
    q = F.layer_norm(q, (64,), q_weight, q_bias).transpose(1, 2)
    k = F.layer_norm(k, (64,), k_weight, k_bias).transpose(1, 2)
    value = v.transpose(1, 2)
    q_rot, q_pass = q[..., :32], q[..., 32:]
    k_rot, k_pass = k[..., :32], k[..., 32:]
    q = torch.cat((q_rot * cos + rotate_half(q_rot) * sin, q_pass), dim=-1)
    k = torch.cat((k_rot * cos + rotate_half(k_rot) * sin, k_pass), dim=-1)
    out = F.scaled_dot_product_attention(q, k, value, is_causal=True)
    return out.transpose(1, 2)
