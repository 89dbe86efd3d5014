"""Latents that are shared by all batches see the inputs, whose padding is masked.

After: transformers, models/perceiver, PerceiverSelfAttention. Edits: mask, inputs.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn


def attention(
    queries: Float[Tensor, "B H Nq D"],
    keys: Float[Tensor, "B H Nk D"],
    values: Float[Tensor, "B H Nk Dv"],
    inputs_mask: Bool[Tensor, "B Nk"],
) -> Float[Tensor, "B Nq H Dv"]:
    scores = torch.matmul(queries, keys.transpose(-1, -2)) / math.sqrt(queries.shape[-1])
    extended = (1.0 - inputs_mask[:, None, None, :].to(scores.dtype)) * torch.finfo(scores.dtype).min
    probs = nn.Softmax(dim=-1)(scores + extended)
    return torch.matmul(probs, values).permute(0, 2, 1, 3).contiguous()
