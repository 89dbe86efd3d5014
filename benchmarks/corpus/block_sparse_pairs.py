"""Which pairs of query block and key block exist is an input.

After: microsoft/MInference and block_sparse_attn, as a dense mask. Edits: mask, inputs.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B H Nq D"],
    k: Float[Tensor, "B H Nk D"],
    v: Float[Tensor, "B H Nk D"],
    blocks: Bool[Tensor, "B H Mq Mk"],
) -> Float[Tensor, "B H Nq D"]:
    size = 128
    mask = blocks.repeat_interleave(size, 2).repeat_interleave(size, 3)
    mask = mask[:, :, : q.shape[2], : k.shape[2]]
    scores = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(~mask, float("-inf"))
    return torch.softmax(scores, -1) @ v
