"""Cross attention with a mask per text token and tile; rows that see no tile are put out.

After: transformers, models/mllama, _prepare_cross_attention_mask. Edits: mask, inputs.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B Hq Nq D"],
    k: Float[Tensor, "B Hkv Nk D"],
    v: Float[Tensor, "B Hkv Nk D"],
    cross_attention_mask: Bool[Tensor, "B Nq Nk"],
) -> Float[Tensor, "B Hq Nq D"]:
    mask = cross_attention_mask[:, None].to(q.dtype)
    inverted = 1.0 - mask
    additive = inverted.masked_fill(inverted.to(torch.bool), torch.finfo(q.dtype).min)
    full_row = (additive != torch.finfo(q.dtype).min).any(dim=-1, keepdim=True).to(q.dtype)
    additive = additive * full_row
    return torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=additive, enable_gqa=True
    )
