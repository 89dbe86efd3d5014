"""Image and text tokens attend to one another: q, k and v are concatenated from both.

After: diffusers, JointAttnProcessor2_0. Edits: before.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    query: Float[Tensor, "B H N D"],
    key: Float[Tensor, "B H N D"],
    value: Float[Tensor, "B H N D"],
    encoder_query: Float[Tensor, "B H T D"],
    encoder_key: Float[Tensor, "B H T D"],
    encoder_value: Float[Tensor, "B H T D"],
):
    query = torch.cat([query, encoder_query], dim=2)
    key = torch.cat([key, encoder_key], dim=2)
    value = torch.cat([value, encoder_value], dim=2)
    return torch.nn.functional.scaled_dot_product_attention(query, key, value)
