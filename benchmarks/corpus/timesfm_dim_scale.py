"""A learned scale of every column of q, through softplus.

After: google-research/timesfm, TimesFMAttention. Edits: before, mask, inputs.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B N H D"],
    k: Float[Tensor, "B N H D"],
    v: Float[Tensor, "B N H D"],
    scaling: Float[Tensor, "D"],
    mask: Float[Tensor, "B 1 N N"],
) -> Float[Tensor, "B N H D"]:
    scale = F.softplus(scaling).mul(1.442695041 / math.sqrt(q.shape[-1]))
    q = q * scale[None, None, None, :]
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    scores = torch.matmul(q, k.transpose(2, 3)) + mask
    scores = F.softmax(scores.float(), dim=-1).type_as(q)
    return torch.matmul(scores, v).transpose(1, 2)
