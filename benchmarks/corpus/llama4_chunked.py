"""Causal within chunks of the sequence.

After: transformers, masking_utils, chunked_overlay. Edits: mask.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B Hq Nq D"],
    k: Float[Tensor, "B Hkv Nk D"],
    v: Float[Tensor, "B Hkv Nk D"],
    attention_chunk_size: int = 8192,
) -> Float[Tensor, "B Hq Nq D"]:
    position = torch.arange(q.shape[2], device=q.device) + k.shape[2] - q.shape[2]
    column = torch.arange(k.shape[2], device=q.device)
    same = position[:, None] // attention_chunk_size == column[None, :] // attention_chunk_size
    keep = same & (column[None, :] <= position[:, None])
    return torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=keep, enable_gqa=True
    )
