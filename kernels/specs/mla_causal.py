"""Multi-head latent attention in its expanded form: keys without positions and a part with them.

A head's queries and keys have 128 columns of their own and 64 that carry positions by a rotation;
the keys' rotated part is one for all heads. The score is the sum of both products, after
DeepSeek-V2 (Bi et al., arXiv 2405.04434) and DeepSeek-V3 (arXiv 2412.19437).
"""

import torch
from jaxtyping import Float
from torch import Tensor


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """RoFormer (Su et al., arXiv 2104.09864), the columns in two halves."""
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-high, low), dim=-1) * sin


def attention(
    q_nope: Float[Tensor, "B H N 128"],
    q_pe: Float[Tensor, "B H N 64"],
    k_nope: Float[Tensor, "B H N 128"],
    k_pe: Float[Tensor, "B 1 N 64"],
    v: Float[Tensor, "B H N 128"],
    cos: Float[Tensor, "N 64"],
    sin: Float[Tensor, "N 64"],
) -> Float[Tensor, "B H N 128"]:
    n = q_nope.size(2)
    q_pe, k_pe = rotated(q_pe, cos, sin), rotated(k_pe, cos, sin)
    scores = q_nope @ k_nope.transpose(-1, -2) + q_pe @ k_pe.transpose(-1, -2)
    future = torch.ones(n, n, dtype=torch.bool, device=q_nope.device).triu(1)
    scores = (scores * 192**-0.5).masked_fill(future, float("-inf"))
    return scores.softmax(-1, dtype=torch.float32).to(v.dtype) @ v
