"""A tree of draft tokens as a Bool table behind the context.

After: SafeAILab/EAGLE, tree attention. Edits: mask, inputs.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B H T D"],
    k: Float[Tensor, "B H Nk D"],
    v: Float[Tensor, "B H Nk D"],
    tree: Bool[Tensor, "T T"],
) -> Float[Tensor, "B H T D"]:
    t, n = q.shape[2], k.shape[2]
    keep = torch.cat([torch.ones(t, n - t, dtype=torch.bool, device=q.device), tree], dim=-1)
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=keep)
