"""Keys in the same row or column of an image of fixed width.

After: lucidrains/DALLE-pytorch, axial attention, as a mask. Edits: mask.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B H N D"],
    k: Float[Tensor, "B H N D"],
    v: Float[Tensor, "B H N D"],
    width: int = 32,
) -> Float[Tensor, "B H N D"]:
    t = torch.arange(q.shape[2], device=q.device)
    row, col = t // width, t % width
    same = (row[:, None] == row[None, :]) | (col[:, None] == col[None, :])
    keep = same & (t[None, :] <= t[:, None])
    scores = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(~keep, float("-inf"))
    return torch.softmax(scores, -1) @ v
