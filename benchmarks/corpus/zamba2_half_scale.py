"""The scale is that of half of the columns.

After: transformers, Zamba2Attention. Edits: score, mask.
"""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B H N D"],
    k: Float[Tensor, "B H N D"],
    v: Float[Tensor, "B H N D"],
) -> Float[Tensor, "B N H*D"]:
    scaling = (q.shape[-1] / 2) ** -0.5
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scaling)
    return out.transpose(1, 2).reshape(q.shape[0], q.shape[2], -1)
