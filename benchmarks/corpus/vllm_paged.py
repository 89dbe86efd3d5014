"""Keys and values are gathered from the pages of a cache.

After: vllm-project/vllm, reference of paged attention. Edits: refused (paging).
"""

import torch
from jaxtyping import Float, Int32
from torch import Tensor


def attention(
    q: Float[Tensor, "B H Nq D"],
    k_cache: Float[Tensor, "P 16 H D"],
    v_cache: Float[Tensor, "P 16 H D"],
    block_table: Int32[Tensor, "B M"],  # 0..P - 1
) -> Float[Tensor, "B H Nq D"]:
    k = k_cache[block_table.long()].flatten(1, 2).transpose(1, 2)
    v = v_cache[block_table.long()].flatten(1, 2).transpose(1, 2)
    return torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1) @ v
