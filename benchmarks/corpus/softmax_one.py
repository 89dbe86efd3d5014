"""Softmax with one more in the denominator.

After: "Attention is off by one" (softmax1), in common PyTorch writings. Edits: after.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B H N D"],
    k: Float[Tensor, "B H N D"],
    v: Float[Tensor, "B H N D"],
) -> Float[Tensor, "B H N D"]:
    scores = q @ k.mT * q.shape[-1] ** -0.5
    top = scores.amax(-1, keepdim=True).clamp(min=0)
    weights = (scores - top).exp()
    return (weights / (weights.sum(-1, keepdim=True) + (-top).exp())) @ v
