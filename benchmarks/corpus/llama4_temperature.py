"""q times a temperature that grows with the position, then causal attention.

After: transformers, models/llama4, attn_temperature_tuning. Edits: before.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B H N D"],
    k: Float[Tensor, "B H N D"],
    v: Float[Tensor, "B H N D"],
    attn_scale: float = 0.1,
    floor_scale: float = 8192.0,
) -> Float[Tensor, "B H N D"]:
    position = torch.arange(q.shape[2], device=q.device)
    scales = torch.log1p(torch.floor((position.float() + 1.0) / floor_scale)) * attn_scale + 1.0
    q = (q * scales.view(1, 1, -1, 1)).to(q.dtype)
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
