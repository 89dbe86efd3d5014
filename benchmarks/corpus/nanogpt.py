"""The causal buffer of ones and zeros compared with zero.

After: karpathy/nanoGPT, CausalSelfAttention without flash. Edits: mask.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

BLOCK_SIZE = 2048
bias = torch.tril(torch.ones(BLOCK_SIZE, BLOCK_SIZE)).view(1, 1, BLOCK_SIZE, BLOCK_SIZE)


def attention(
    q: Float[Tensor, "B nh T hs"],
    k: Float[Tensor, "B nh T hs"],
    v: Float[Tensor, "B nh T hs"],
) -> Float[Tensor, "B nh T hs"]:
    T = q.size(2)
    att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
    att = att.masked_fill(bias[:, :, :T, :T].to(q.device) == 0, float("-inf"))
    att = F.softmax(att, dim=-1)
    return att @ v
