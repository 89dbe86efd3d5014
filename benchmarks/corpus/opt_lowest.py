"""The masked score is held at the type's lowest number by torch.max.

After: transformers, models/opt, OPTAttention (before 4.48). Edits: mask, inputs.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn


def attention(
    query: Float[Tensor, "B H Nq D"],
    key: Float[Tensor, "B H Nk D"],
    value: Float[Tensor, "B H Nk D"],
    attention_mask: Float[Tensor, "B 1 Nq Nk"],
) -> Float[Tensor, "B H Nq D"]:
    weights = torch.matmul(query * query.shape[-1] ** -0.5, key.transpose(-2, -1))
    weights = weights + attention_mask
    weights = torch.max(weights, torch.tensor(torch.finfo(weights.dtype).min))
    weights = nn.functional.softmax(weights, dim=-1, dtype=torch.float32).to(query.dtype)
    return torch.matmul(weights, value)
