"""A sliding window of keys, bottom-right, by a mask of positions.

After: transformers, masking_utils, sliding_window_overlay. Edits: mask.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    query: Float[Tensor, "B Hq Nq D"],
    key: Float[Tensor, "B Hkv Nk D"],
    value: Float[Tensor, "B Hkv Nk D"],
    sliding_window: int = 4096,
) -> Float[Tensor, "B Hq Nq D"]:
    cache_position = torch.arange(query.shape[2], device=query.device)
    cache_position = cache_position + key.shape[2] - query.shape[2]
    q_idx = cache_position[:, None]
    kv_idx = torch.arange(key.shape[2], device=query.device)[None, :]
    allowed = (kv_idx <= q_idx) & (kv_idx > q_idx - sliding_window)
    return torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=allowed[None, None], enable_gqa=True
    )
