"""The first tokens and a window of the last ones.

After: mit-han-lab/streaming-llm, as a mask. Edits: mask.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B H Nq D"],
    k: Float[Tensor, "B H Nk D"],
    v: Float[Tensor, "B H Nk D"],
    start_size: int = 4,
    recent_size: int = 1020,
) -> Float[Tensor, "B H Nq D"]:
    i = torch.arange(q.shape[2], device=q.device)[:, None] + k.shape[2] - q.shape[2]
    j = torch.arange(k.shape[2], device=q.device)[None, :]
    keep = (j <= i) & ((j < start_size) | (i - j < recent_size))
    scores = (q @ k.mT) / q.shape[-1] ** 0.5
    scores = scores.masked_fill(~keep, torch.finfo(scores.dtype).min)
    return torch.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype) @ v
