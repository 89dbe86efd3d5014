"""RMS norm of q and k with weights of 1 + w, and a fixed scale.

After: transformers, models/gemma3, Gemma3Attention. Edits: before.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def norm(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    out = x.float()
    out = out * torch.rsqrt(out.pow(2).mean(-1, keepdim=True) + eps)
    out = out * (1.0 + weight.float())
    return out.type_as(x)


def attention(
    q: Float[Tensor, "B Hq N D"],
    k: Float[Tensor, "B Hkv N D"],
    v: Float[Tensor, "B Hkv N D"],
    q_norm: Float[Tensor, "D"],
    k_norm: Float[Tensor, "D"],
) -> Float[Tensor, "B Hq N D"]:
    return torch.nn.functional.scaled_dot_product_attention(
        norm(q, q_norm), norm(k, k_norm), v, is_causal=True, scale=256**-0.5, enable_gqa=True
    )
