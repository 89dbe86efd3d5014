"""A multiplier of keys, before their rotary embedding.

After: transformers, FalconH1Attention. Edits: before, mask.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def rotate_half(x: Tensor) -> Tensor:
    return torch.cat((-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]), dim=-1)


def attention(
    q: Float[Tensor, "B Hq N D"],
    k: Float[Tensor, "B Hkv N D"],
    v: Float[Tensor, "B Hkv N D"],
    cos: Float[Tensor, "B N D"],
    sin: Float[Tensor, "B N D"],
    key_multiplier: float = 0.39,
) -> Float[Tensor, "B Hq N D"]:
    k = k * key_multiplier
    cos, sin = cos[:, None], sin[:, None]
    q, k = q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
