"""RMS norm of q and k over the channels of all heads.

After: transformers, models/olmo2, Olmo2Attention. Edits: before.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B N 256"],
    k: Float[Tensor, "B N 256"],
    v: Float[Tensor, "B N 256"],
    q_norm: Float[Tensor, "256"],
    k_norm: Float[Tensor, "256"],
) -> Float[Tensor, "B 4 N 64"]:
    def rms(x: Tensor, weight: Tensor) -> Tensor:
        x32 = x.float()
        x32 = x32 * torch.rsqrt(x32.pow(2).mean(-1, keepdim=True) + 1e-6)
        return (weight * x32).to(x.dtype)

    def heads(x: Tensor) -> Tensor:
        return x.view(x.shape[0], x.shape[1], 4, 64).transpose(1, 2)

    q, k, v = heads(rms(q, q_norm)), heads(rms(k, k_norm)), heads(v)
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
