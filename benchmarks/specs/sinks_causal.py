"""Causal attention with attention sinks, as in the full layers of gpt-oss: a logit per head without a value.

The sink takes part in the softmax as one more column, which is dropped: the weights of a row's keys
sum to less than 1, and a row may attend to nothing. keep(i, j) = j <= p with
p = i + Nk - Nq (bottom-right).
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B Hq Nq D"],
    k: Float[Tensor, "B Hkv Nk D"],
    v: Float[Tensor, "B Hkv Nk D"],
    sinks: Float[Tensor, "Hq"],
) -> Float[Tensor, "B Hq Nq D"]:
    group = q.size(1) // k.size(1)
    k = k.repeat_interleave(group, dim=1)
    v = v.repeat_interleave(group, dim=1)
    n_q, n_k = q.size(-2), k.size(-2)
    scores = (q @ k.transpose(-2, -1)).float() / math.sqrt(q.size(-1))
    position = torch.arange(n_k - n_q, n_k, device=q.device)[:, None]
    key = torch.arange(n_k, device=q.device)[None, :]
    keep = key <= position
    scores = scores.masked_fill(~keep, float("-inf"))
    column = sinks.float().view(1, -1, 1, 1).expand(q.size(0), -1, n_q, 1)
    weights = torch.softmax(torch.cat([scores, column], dim=-1), dim=-1)
    return weights[..., :-1].to(q.dtype) @ v
