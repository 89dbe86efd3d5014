"""ALiBi: a linear penalty on distance, one slope per head, causal bottom-right.

s = q k^T / sqrt(D) + slope_h * (j - p) with p = i + Nk - Nq, keep(i, j) = j <= p. Slopes are
2^(-8 (h + 1) / Hq) for a power of two of heads; otherwise those of the next lower power of two,
then every other slope of the next higher one (Press et al., 2022).
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor


def slopes_for(heads: int) -> list[float]:
    lower = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (h + 1) / lower) for h in range(lower)]
    between = [2 ** (-4 * (h + 1) / lower) for h in range(0, 2 * lower, 2)]
    return slopes + between[: heads - lower]


def attention(
    q: Float[Tensor, "B Hq Nq D"],
    k: Float[Tensor, "B Hkv Nk D"],
    v: Float[Tensor, "B Hkv Nk D"],
) -> Float[Tensor, "B Hq Nq D"]:
    heads, n_q, n_k = q.size(1), q.size(2), k.size(2)
    k = k.repeat_interleave(heads // k.size(1), dim=1)
    v = v.repeat_interleave(heads // v.size(1), dim=1)
    slopes = torch.tensor(slopes_for(heads), device=q.device)[:, None, None]
    i = torch.arange(n_q, device=q.device)[:, None] + n_k - n_q
    j = torch.arange(n_k, device=q.device)[None, :]
    scores = (q @ k.transpose(-2, -1)).float() / math.sqrt(q.size(-1))
    scores = scores + slopes * (j - i)
    scores = scores.masked_fill(j > i, float("-inf"))
    return torch.softmax(scores, dim=-1).to(q.dtype) @ v
