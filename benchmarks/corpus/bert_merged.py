"""Encoder attention with an extended padding mask; the heads are merged at the end.

After: transformers, models/bert, BertSelfAttention. Edits: mask, after.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn


def attention(
    query_layer: Float[Tensor, "B H N D"],
    key_layer: Float[Tensor, "B H N D"],
    value_layer: Float[Tensor, "B H N D"],
    attention_mask: Float[Tensor, "B 1 1 N"],
):
    scores = torch.matmul(query_layer, key_layer.transpose(-1, -2))
    scores = scores / math.sqrt(query_layer.size(-1))
    scores = scores + attention_mask
    probs = nn.functional.softmax(scores, dim=-1)
    context = torch.matmul(probs, value_layer)
    context = context.permute(0, 2, 1, 3).contiguous()
    return context.view(context.size()[:-2] + (context.size(-2) * context.size(-1),))
