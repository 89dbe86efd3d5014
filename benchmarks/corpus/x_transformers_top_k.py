"""All but the highest scores of a row are masked.

After: lucidrains/x-transformers, sparse_topk. Edits: refused (top-k).
"""

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B H N D"],
    k: Float[Tensor, "B H N D"],
    v: Float[Tensor, "B H N D"],
    sparse_topk: int = 4,
) -> Float[Tensor, "B H N D"]:
    dots = q @ k.mT * q.shape[-1] ** -0.5
    top, _ = dots.topk(sparse_topk, dim=-1)
    dots = dots.masked_fill(dots < top[..., -1:], -torch.finfo(dots.dtype).max)
    return torch.softmax(dots, -1) @ v
