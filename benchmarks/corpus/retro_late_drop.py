"""A dropout mask that the caller drew, on the normalised weights.

After: Megatron-LM, CoreAttention with a given mask. Edits: weight, mask.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B H N D"],
    k: Float[Tensor, "B H N D"],
    v: Float[Tensor, "B H N D"],
    kept: Bool[Tensor, "B H N N"],
    p: float = 0.1,
) -> Float[Tensor, "B H N D"]:
    n = q.shape[2]
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    future = torch.ones(n, n, device=q.device, dtype=torch.bool).triu(1)
    weights = scores.masked_fill(future, float("-inf")).softmax(-1)
    return (weights * kept / (1 - p)) @ v
