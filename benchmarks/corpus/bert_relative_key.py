"""A second product of q with an embedding of the distance is added to the scores.

After: transformers, models/bert, position_embedding_type "relative_key". Edits: before.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

LONGEST = 512


def attention(
    q: Float[Tensor, "B H N D"],
    k: Float[Tensor, "B H N D"],
    v: Float[Tensor, "B H N D"],
    distance_embedding: Float[Tensor, "1023 D"],
) -> Float[Tensor, "B H N D"]:
    scores = torch.matmul(q, k.transpose(-1, -2))
    left = torch.arange(q.shape[2], device=q.device).view(-1, 1)
    right = torch.arange(k.shape[2], device=q.device).view(1, -1)
    position = distance_embedding[left - right + LONGEST - 1].to(q.dtype)
    scores = scores + torch.einsum("bhld,lrd->bhlr", q, position)
    return torch.softmax(scores / math.sqrt(q.shape[-1]), -1) @ v
