"""Encoder attention; the padding mask of ones and zeros becomes (1 - mask) * finfo.min.

After: transformers, modeling_utils, get_extended_attention_mask. Edits: mask, inputs.
"""

import math

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn


def attention(
    query: Float[Tensor, "B N H D"],
    key: Float[Tensor, "B N H D"],
    value: Float[Tensor, "B N H D"],
    attention_mask: Int64[Tensor, "B N"],  # 0..1
) -> Float[Tensor, "B N H D"]:
    extended = attention_mask[:, None, None, :].to(dtype=query.dtype)
    extended = (1.0 - extended) * torch.finfo(query.dtype).min
    query, key, value = (x.transpose(1, 2) for x in (query, key, value))
    scores = torch.matmul(query, key.transpose(-1, -2)) / math.sqrt(query.size(-1))
    probs = nn.functional.softmax(scores + extended, dim=-1)
    return torch.matmul(probs, value).permute(0, 2, 1, 3)
