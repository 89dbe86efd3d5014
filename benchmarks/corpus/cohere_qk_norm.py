"""Layer norm of q and k without bias, a weight for each head.

After: transformers, CohereAttention. Edits: before, mask.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def normalised(x: Tensor, weight: Tensor) -> Tensor:
    x = x.float()
    centred = x - x.mean(-1, keepdim=True)
    return (
        weight.float()[:, None]
        * centred
        * torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + 1e-5)
    )


def attention(
    q: Float[Tensor, "B Hq N D"],
    k: Float[Tensor, "B Hkv N D"],
    v: Float[Tensor, "B Hkv N D"],
    q_weight: Float[Tensor, "Hq D"],
    k_weight: Float[Tensor, "Hkv D"],
) -> Float[Tensor, "B Hq N D"]:
    query = normalised(q, q_weight).to(q.dtype)
    key = normalised(k, k_weight).to(k.dtype)
    return F.scaled_dot_product_attention(query, key, v, is_causal=True, enable_gqa=True)
