"""Left padding: a row sees keys from its batch's first valid one on, causal.

After: transformers, masking_utils with left-padded batches. Edits: mask, inputs.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B Hq N D"],
    k: Float[Tensor, "B Hkv N D"],
    v: Float[Tensor, "B Hkv N D"],
    padding_mask: Bool[Tensor, "B N"],
) -> Float[Tensor, "B Hq N D"]:
    n = q.shape[2]
    first = padding_mask.to(torch.int32).argmax(-1)
    t = torch.arange(n, device=q.device)
    keep = (t[None, None, :] >= first[:, None, None]) & (t[None, None, :] <= t[None, :, None])
    return torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=keep[:, None], enable_gqa=True
    )
