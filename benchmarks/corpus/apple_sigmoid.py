"""Sigmoid attention with a bias of -log n and a causal mask.

After: apple/ml-sigmoid-attention, eager reference. Edits: weight, mask.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B H N D"],
    k: Float[Tensor, "B H N D"],
    v: Float[Tensor, "B H N D"],
) -> Float[Tensor, "B H N D"]:
    n = k.shape[2]
    scores = torch.matmul(q, k.transpose(-2, -1)) * q.shape[-1] ** -0.5 - math.log(n)
    future = torch.triu(torch.ones(n, n, dtype=torch.bool, device=q.device), 1)
    scores = scores.masked_fill(future, float("-inf"))
    return torch.matmul(torch.sigmoid(scores), v)
