"""Weights are masked after the exponential and divided by their sum with a small number.

After: the masked softmax of graph transformers. Edits: mask, inputs.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B H Nq D"],
    k: Float[Tensor, "B H Nk D"],
    v: Float[Tensor, "B H Nk D"],
    adjacency: Bool[Tensor, "B Nq Nk"],
) -> Float[Tensor, "B H Nq D"]:
    scores = q @ k.mT * q.shape[-1] ** -0.5
    scores = scores - scores.amax(-1, keepdim=True)
    weights = scores.exp() * adjacency[:, None]
    return (weights @ v) / weights.sum(-1, keepdim=True).clamp(min=1e-20)
