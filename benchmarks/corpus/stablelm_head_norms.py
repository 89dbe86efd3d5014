"""A layer norm of its own for each head of q and of k.

After: transformers, StableLmAttention with qk_layernorm. Edits: before, mask.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def by_head(x: Tensor, weight: Tensor) -> Tensor:
    heads = torch.split(x, 1, dim=1)
    return torch.cat(
        [F.layer_norm(h, (x.shape[-1],), weight[n], None, 1e-5) for n, h in enumerate(heads)], dim=1
    )


def attention(
    q: Float[Tensor, "B H N D"],
    k: Float[Tensor, "B H N D"],
    v: Float[Tensor, "B H N D"],
    q_weight: Float[Tensor, "H D"],
    k_weight: Float[Tensor, "H D"],
) -> Float[Tensor, "B H N D"]:
    query, key = by_head(q, q_weight), by_head(k, k_weight)
    return F.scaled_dot_product_attention(query, key, v, is_causal=True)
