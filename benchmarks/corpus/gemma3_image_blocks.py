"""A causal window, and both directions within the tokens of one image.

After: transformers, models/gemma3, create_causal_mask_mapping. Edits: mask, inputs.
"""

import torch
from jaxtyping import Float, Int64
from torch import Tensor


def attention(
    q: Float[Tensor, "B Hq N D"],
    k: Float[Tensor, "B Hkv N D"],
    v: Float[Tensor, "B Hkv N D"],
    image_group_ids: Int64[Tensor, "B N"],  # -1..3
    sliding_window: int = 512,
) -> Float[Tensor, "B Hq N D"]:
    i = torch.arange(q.shape[2], device=q.device)[:, None]
    j = torch.arange(k.shape[2], device=q.device)[None, :]
    window = (j <= i) & (j > i - sliding_window)
    same = image_group_ids[:, :, None] == image_group_ids[:, None, :]
    same = same & (image_group_ids[:, :, None] >= 0)
    keep = (window | same)[:, None]
    return torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=keep, enable_gqa=True
    )
