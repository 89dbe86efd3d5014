"""A list says which key head each query head reads.

After: checkpoints whose pruned heads leave groups of unequal size. Edits: heads.
"""

import torch
from jaxtyping import Float
from torch import Tensor

KV_OF = [0, 0, 1, 1, 1, 2, 3, 3]


def attention(
    q: Float[Tensor, "B 8 Nq D"],
    k: Float[Tensor, "B 4 Nk D"],
    v: Float[Tensor, "B 4 Nk D"],
) -> Float[Tensor, "B 8 Nq D"]:
    k, v = k[:, KV_OF], v[:, KV_OF]
    return torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1) @ v
