"""The difference of two attentions with a learned factor.

After: microsoft/unilm, Diff-Transformer. Edits: after.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q1: Float[Tensor, "B H N D"],
    k1: Float[Tensor, "B H N D"],
    q2: Float[Tensor, "B H N D"],
    k2: Float[Tensor, "B H N D"],
    v: Float[Tensor, "B H N Dv"],
    lambda_init: float = 0.8,
) -> Float[Tensor, "B H N Dv"]:
    scale = q1.shape[-1] ** -0.5
    n = q1.shape[2]
    future = torch.triu(torch.full((n, n), float("-inf"), device=q1.device), 1)
    first = torch.softmax(q1 @ k1.mT * scale + future, -1)
    second = torch.softmax(q2 @ k2.mT * scale + future, -1)
    return (first - lambda_init * second) @ v
