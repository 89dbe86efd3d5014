"""Causal blockwise: a row sees its own block of keys causally, the last block all before it.

keep(i, j) = j <= p and (p // block == j // block or p // block == (Nk - 1) // block), with
p = i + Nk - Nq: in-context examples that do not see each other, and a query that sees them all.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B Hq Nq D"],
    k: Float[Tensor, "B Hkv Nk D"],
    v: Float[Tensor, "B Hkv Nk D"],
    block: int = 512,
) -> Float[Tensor, "B Hq Nq D"]:
    group = q.size(1) // k.size(1)
    k = k.repeat_interleave(group, dim=1)
    v = v.repeat_interleave(group, dim=1)
    n_q, n_k = q.size(-2), k.size(-2)
    i = torch.arange(n_q, device=q.device)[:, None] + n_k - n_q
    j = torch.arange(n_k, device=q.device)[None, :]
    own = i // block == j // block
    last = i // block == (n_k - 1) // block
    keep = (j <= i) & (own | last)
    scores = (q @ k.transpose(-2, -1)).float() / math.sqrt(q.size(-1))
    scores = scores.masked_fill(~keep, float("-inf"))
    return torch.softmax(scores, dim=-1).to(q.dtype) @ v
