"""A bias of the clipped distance, looked up in a table per head.

After: facebookresearch/fairseq and Shaw-style relative biases. Edits: score, inputs.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B H Nq D"],
    k: Float[Tensor, "B H Nk D"],
    v: Float[Tensor, "B H Nk D"],
    rel_embed: Float[Tensor, "65 H"],
    max_position: int = 32,
) -> Float[Tensor, "B H Nq D"]:
    rows = torch.arange(q.shape[2], device=q.device)
    columns = torch.arange(k.shape[2], device=q.device)
    distance = columns[None, :] - rows[:, None]
    clipped = torch.clamp(distance, -max_position, max_position) + max_position
    bias = rel_embed[clipped].permute(2, 0, 1)[None]
    return torch.softmax(q @ k.mT / q.shape[-1] ** 0.5 + bias, -1) @ v
