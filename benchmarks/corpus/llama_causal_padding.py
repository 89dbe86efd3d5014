"""A causal mask and a padding mask made into one additive mask of finfo.min.

After: transformers, models/llama, _prepare_4d_causal_attention_mask_with_cache_position.
Edits: mask, inputs.
"""

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn


def attention(
    query: Float[Tensor, "B H N D"],
    key: Float[Tensor, "B H N D"],
    value: Float[Tensor, "B H N D"],
    attention_mask: Int64[Tensor, "B N"],  # 0..1
) -> Float[Tensor, "B N H D"]:
    length = query.shape[2]
    lowest = torch.finfo(query.dtype).min
    causal_mask = torch.full((length, length), lowest, dtype=query.dtype, device=query.device)
    causal_mask = torch.triu(causal_mask, diagonal=1)
    causal_mask = causal_mask[None, None, :, :].expand(query.shape[0], 1, -1, -1).clone()
    padding = causal_mask + attention_mask[:, None, None, :]
    padding = padding == 0
    causal_mask = causal_mask.masked_fill(padding, lowest)
    causal_mask = torch.where(
        (attention_mask[:, None, None, :] == 0) | (causal_mask == lowest), lowest, causal_mask
    )
    weights = torch.matmul(query, key.transpose(2, 3)) / query.shape[-1] ** 0.5 + causal_mask
    weights = nn.functional.softmax(weights, dim=-1, dtype=torch.float32).to(query.dtype)
    return torch.matmul(weights, value).transpose(1, 2)
