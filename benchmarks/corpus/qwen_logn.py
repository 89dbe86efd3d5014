"""q times the logarithm of its position beyond the length of training.

After: QwenLM/Qwen, use_logn_attn. Edits: before.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B H N D"],
    k: Float[Tensor, "B H N D"],
    v: Float[Tensor, "B H N D"],
    seq_length: int = 16,
) -> Float[Tensor, "B H N D"]:
    n = q.shape[2]
    logn = [math.log(i, seq_length) if i > seq_length else 1 for i in range(1, n + 1)]
    q = q * torch.tensor(logn, dtype=q.dtype, device=q.device)[None, None, :, None]
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
