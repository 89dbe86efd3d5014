"""Causal for text, bidirectional for the tokens of the prefix, by a type per token.

After: transformers, models/paligemma, token_type_ids_mask_function. Edits: mask, inputs.
"""

import torch
from jaxtyping import Float, Int64
from torch import Tensor


def attention(
    q: Float[Tensor, "B Hq N D"],
    k: Float[Tensor, "B Hkv N D"],
    v: Float[Tensor, "B Hkv N D"],
    token_type_ids: Int64[Tensor, "B N"],  # 0..1
    attention_mask: Int64[Tensor, "B N"],  # 0..1
) -> Float[Tensor, "B Hq N D"]:
    n = q.shape[2]
    causal = torch.ones(n, n, dtype=torch.bool, device=q.device).tril()[None, None]
    prefix = (token_type_ids == 0)[:, None, None, :]
    keep = (causal | prefix) & attention_mask.bool()[:, None, None, :]
    return torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=keep, enable_gqa=True
    )
