"""Packed sequences found where the positions restart, causal within.

After: transformers, masking_utils, find_packed_sequence_indices. Edits: mask, inputs.
"""

import torch
from jaxtyping import Float, Int64
from torch import Tensor


def attention(
    q: Float[Tensor, "B H N D"],
    k: Float[Tensor, "B H N D"],
    v: Float[Tensor, "B H N D"],
    position_ids: Int64[Tensor, "B N"],
) -> Float[Tensor, "B H N D"]:
    first = position_ids[:, :1] - 1
    difference = torch.diff(position_ids, prepend=first, dim=-1)
    sequence = (difference != 1).cumsum(-1)
    n = q.shape[2]
    causal = torch.ones(n, n, dtype=torch.bool, device=q.device).tril()
    same = sequence[:, :, None] == sequence[:, None, :]
    keep = (same & causal)[:, None]
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=keep)
