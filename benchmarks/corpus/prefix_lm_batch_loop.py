"""The prefix of each batch is opened in a Python loop.

After: THUDM/ChatGLM-6B, get_masks (the loop over context lengths). Edits: mask, inputs.
"""

import torch
from jaxtyping import Float, Int64
from torch import Tensor


def attention(
    q: Float[Tensor, "B H N D"],
    k: Float[Tensor, "B H N D"],
    v: Float[Tensor, "B H N D"],
    context_lengths: Int64[Tensor, "B"],
) -> Float[Tensor, "B H N D"]:
    batch, n = q.shape[0], q.shape[2]
    mask = torch.ones((batch, n, n), device=q.device).tril_()
    for i, context_length in enumerate(context_lengths):
        mask[i, :, :context_length] = 1
    mask = (mask.unsqueeze(1) < 0.5).bool()
    scores = torch.matmul(q, k.transpose(-2, -1)) / q.shape[-1] ** 0.5
    scores = scores.masked_fill(mask, -float("inf"))
    return torch.matmul(torch.softmax(scores, dim=-1), v)
