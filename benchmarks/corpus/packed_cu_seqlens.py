"""Packed sequences: a token's sequence by searchsorted of the cumulative lengths, causal within.

After: flash-attn's varlen interface as eager code; transformers, data collator with flattening.
Edits: mask, inputs.
"""

import torch
from jaxtyping import Float, Int32
from torch import Tensor


def attention(
    q: Float[Tensor, "1 H N D"],
    k: Float[Tensor, "1 H N D"],
    v: Float[Tensor, "1 H N D"],
    cu_seqlens: Int32[Tensor, "S"],
) -> Float[Tensor, "1 H N D"]:
    t = torch.arange(q.shape[2], device=q.device)
    seq = torch.searchsorted(cu_seqlens.long(), t, right=True)
    keep = (seq[:, None] == seq[None, :]) & (t[:, None] >= t[None, :])
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=keep[None, None])
