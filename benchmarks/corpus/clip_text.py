"""The causal mask is an additive upper triangle of the type's lowest number.

After: openai/CLIP, build_attention_mask. Edits: mask.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B H N D"],
    k: Float[Tensor, "B H N D"],
    v: Float[Tensor, "B H N D"],
) -> Float[Tensor, "B H N D"]:
    mask = torch.empty(q.shape[2], q.shape[2])
    mask.fill_(float("-inf"))
    mask.triu_(1)
    scores = q * q.shape[-1] ** -0.5 @ k.transpose(-2, -1)
    return torch.softmax(scores + mask.to(q.dtype), dim=-1) @ v
