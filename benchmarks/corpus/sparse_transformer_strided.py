"""The strided pattern: the last keys and every stride-th one.

After: openai/sparse_attention, strided attention. Edits: mask.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B H N D"],
    k: Float[Tensor, "B H N D"],
    v: Float[Tensor, "B H N D"],
    stride: int = 64,
) -> Float[Tensor, "B H N D"]:
    n = q.shape[2]
    x = torch.arange(n, device=q.device).view(n, 1)
    y = x.transpose(0, 1)
    z = torch.zeros(n, n, dtype=torch.long, device=q.device)
    i, j = z + x, z + y
    keep = (i >= j) & ((torch.fmod(i - j, stride) == 0) | (i - j < stride))
    w = q @ k.mT / q.shape[-1] ** 0.5
    w = w * keep.to(w.dtype) + -1e9 * (1 - keep.to(w.dtype))
    return torch.softmax(w, -1) @ v
