"""Plain attention of an image model, q scaled first.

After: timm, vision_transformer.Attention without fused_attn. Edits: none.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B H N D"],
    k: Float[Tensor, "B H N D"],
    v: Float[Tensor, "B H N D"],
) -> Float[Tensor, "B N H D"]:
    q = q * q.shape[-1] ** -0.5
    attn = q @ k.transpose(-2, -1)
    attn = attn.softmax(dim=-1)
    return (attn @ v).transpose(1, 2)
