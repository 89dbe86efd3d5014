"""Cosine attention: normalised q and k, a clamped learned scale per head, a bias of 16 sigmoid.

After: microsoft/Swin-Transformer, WindowAttention of v2. Edits: before, score.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B H N D"],
    k: Float[Tensor, "B H N D"],
    v: Float[Tensor, "B H N D"],
    logit_scale: Float[Tensor, "H 1 1"],
    bias: Float[Tensor, "H N N"],
) -> Float[Tensor, "B H N D"]:
    attn = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1)
    attn = attn * torch.clamp(logit_scale, max=math.log(1.0 / 0.01)).exp()
    attn = attn + (16 * torch.sigmoid(bias)).unsqueeze(0)
    return torch.softmax(attn, dim=-1) @ v
