"""scaled_dot_product_attention, causal, with grouped heads repeated before it.

After: transformers, integrations/sdpa_attention. Edits: mask.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    query: Float[Tensor, "B Hq N D"],
    key: Float[Tensor, "B Hkv N D"],
    value: Float[Tensor, "B Hkv N D"],
    scaling: float | None = None,
) -> Float[Tensor, "B N Hq D"]:
    groups = query.shape[1] // key.shape[1]
    key = key[:, :, None].expand(-1, -1, groups, -1, -1).reshape(*query.shape)
    value = value[:, :, None].expand(-1, -1, groups, -1, -1).reshape(*query.shape)
    out = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=None, dropout_p=0.0, scale=scaling, is_causal=True
    )
    return out.transpose(1, 2).contiguous()
