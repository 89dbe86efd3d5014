"""Dropout of the weights, as a layer in training has it.

After: transformers, eager attention in training. Edits: refused (dropout).
"""

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B H N D"],
    k: Float[Tensor, "B H N D"],
    v: Float[Tensor, "B H N D"],
) -> Float[Tensor, "B H N D"]:
    weights = torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1)
    weights = torch.nn.functional.dropout(weights, p=0.1, training=True)
    return weights @ v
