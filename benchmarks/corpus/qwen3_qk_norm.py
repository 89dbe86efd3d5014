"""RMS norm of q and k over a head's channels, with learned weights, then causal attention.

After: transformers, models/qwen3, Qwen3Attention. Edits: before.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    dtype = x.dtype
    x = x.to(torch.float32)
    x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    return weight * x.to(dtype)


def attention(
    q: Float[Tensor, "B N Hq D"],
    k: Float[Tensor, "B N Hkv D"],
    v: Float[Tensor, "B N Hkv D"],
    q_norm: Float[Tensor, "D"],
    k_norm: Float[Tensor, "D"],
) -> Float[Tensor, "B Hq N D"]:
    q = rms_norm(q, q_norm).transpose(1, 2)
    k = rms_norm(k, k_norm).transpose(1, 2)
    return torch.nn.functional.scaled_dot_product_attention(
        q, k, v.transpose(1, 2), is_causal=True, enable_gqa=True
    )
