"""RMS norm of the output over all heads, before its projection.

After: transformers, BitNetAttention. Edits: after, mask.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B Hq N D"],
    k: Float[Tensor, "B Hkv N D"],
    v: Float[Tensor, "B Hkv N D"],
    weight: Float[Tensor, "Hq D"],
) -> Float[Tensor, "B N Hq*D"]:
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    out = out.transpose(1, 2).flatten(2)
    out = out * torch.rsqrt(out.float().pow(2).mean(-1, keepdim=True) + 1e-5).to(out.dtype)
    return out * weight.flatten()
