"""Draft tokens see the whole context and their ancestors in a tree that is given.

After: FasterDecoding/Medusa, medusa_attn_mask. Edits: mask, inputs.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B H T D"],
    k: Float[Tensor, "B H Nk D"],
    v: Float[Tensor, "B H Nk D"],
    tree_mask: Float[Tensor, "1 1 T T"],
) -> Float[Tensor, "B H T D"]:
    t, n = q.shape[2], k.shape[2]
    mask = torch.zeros(1, 1, t, n, device=q.device, dtype=q.dtype)
    mask[:, :, -t:, -t:][tree_mask == 0] = torch.finfo(q.dtype).min
    scores = q @ k.mT * q.shape[-1] ** -0.5 + mask
    return torch.softmax(scores.float(), -1).to(q.dtype) @ v
