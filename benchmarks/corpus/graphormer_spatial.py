"""A learned bias per head for the shortest-path distance of two nodes, and a padding mask.

After: microsoft/Graphormer, GraphAttnBias and MultiheadAttention. Edits: score, mask, inputs.
"""

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor


def attention(
    q: Float[Tensor, "B H N D"],
    k: Float[Tensor, "B H N D"],
    v: Float[Tensor, "B H N D"],
    spatial_pos: Int64[Tensor, "B N N"],  # 0..39
    spatial_pos_encoder: Float[Tensor, "40 H"],
    key_padding_mask: Bool[Tensor, "B N"],
) -> Float[Tensor, "B H N D"]:
    bias = spatial_pos_encoder[spatial_pos].permute(0, 3, 1, 2)
    weights = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    weights = weights + bias
    weights = weights.masked_fill(key_padding_mask[:, None, None, :], float("-inf"))
    return torch.softmax(weights.float(), dim=-1).type_as(weights) @ v
