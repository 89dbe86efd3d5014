"""A noised and a clean half: blocks see their own half's block and earlier clean blocks.

After: kuleshov-group/bd3lms, block_diff_mask. Edits: mask.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B H N D"],
    k: Float[Tensor, "B H N D"],
    v: Float[Tensor, "B H N D"],
    block_size: int = 16,
) -> Float[Tensor, "B H N D"]:
    n = q.shape[2] // 2
    q_idx = torch.arange(q.shape[2], device=q.device)[:, None]
    kv_idx = torch.arange(k.shape[2], device=q.device)[None, :]
    x0_q, x0_kv = q_idx >= n, kv_idx >= n
    block_q = torch.where(x0_q, (q_idx - n) // block_size, q_idx // block_size)
    block_kv = torch.where(x0_kv, (kv_idx - n) // block_size, kv_idx // block_size)
    diagonal = (block_q == block_kv) & (x0_q == x0_kv)
    offset = (block_q > block_kv) & x0_kv & ~x0_q
    causal = (block_q >= block_kv) & x0_kv & x0_q
    mask = diagonal | offset | causal
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
