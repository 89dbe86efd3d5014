"""Three edits at once: a prefix mask, a soft cap, and sigmoid weights instead of a softmax.

s = c * tanh(q k^T / sqrt(D) / c) - ln Nk; weights sigmoid(s) where j < prefix or j <= i, else 0.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B Hq Nq D"],
    k: Float[Tensor, "B Hkv Nk D"],
    v: Float[Tensor, "B Hkv Nk D"],
    prefix: int = 256,
    softcap: float = 50.0,
) -> Float[Tensor, "B Hq Nq D"]:
    group = q.size(1) // k.size(1)
    k = k.repeat_interleave(group, dim=1)
    v = v.repeat_interleave(group, dim=1)
    scores = (q @ k.transpose(-2, -1)).float() / math.sqrt(q.size(-1))
    scores = softcap * torch.tanh(scores / softcap) - math.log(k.size(-2))
    causal = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
    in_prefix = torch.arange(k.size(-2), device=q.device) < prefix
    weights = torch.sigmoid(scores).masked_fill(~(causal | in_prefix), 0.0)
    return weights.to(q.dtype) @ v
