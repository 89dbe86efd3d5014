"""The same window, with the positions of the queries given and a padding mask.

After: transformers, masking_utils, create_sliding_window_causal_mask. Edits: mask, inputs.
"""

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor


def attention(
    query: Float[Tensor, "B Hq Nq D"],
    key: Float[Tensor, "B Hkv Nk D"],
    value: Float[Tensor, "B Hkv Nk D"],
    cache_position: Int64[Tensor, "Nq"],
    padding_mask: Bool[Tensor, "B Nk"],
    sliding_window: int = 96,
) -> Float[Tensor, "B Hq Nq D"]:
    q_idx = cache_position[None, None, :, None]
    kv_idx = torch.arange(key.shape[2], device=query.device)[None, None, None, :]
    allowed = (kv_idx <= q_idx) & (kv_idx > q_idx - sliding_window)
    allowed = allowed & padding_mask[:, None, None, :]
    return torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=allowed, enable_gqa=True
    )
