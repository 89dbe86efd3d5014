"""Share question: several answers to one question, as in preference training.

keep(i, j) = j <= i and (segment(j) == 0 or segment(i) == segment(j)): a sequence is a question
(segment 0) and its answers (segments 1, 2, ...) one after another; every answer sees the question
and itself, none sees another.
"""

import math

import torch
from jaxtyping import Float, Int32
from torch import Tensor


def attention(
    q: Float[Tensor, "B Hq N D"],
    k: Float[Tensor, "B Hkv N D"],
    v: Float[Tensor, "B Hkv N D"],
    segment: Int32[Tensor, "B N"],
) -> Float[Tensor, "B Hq N D"]:
    group = q.size(1) // k.size(1)
    k = k.repeat_interleave(group, dim=1)
    v = v.repeat_interleave(group, dim=1)
    n = q.size(-2)
    i = torch.arange(n, device=q.device)[:, None]
    j = torch.arange(n, device=q.device)[None, :]
    asked = segment[:, None, None, :] == 0
    own = segment[:, None, :, None] == segment[:, None, None, :]
    keep = (j <= i) & (asked | own)
    scores = (q @ k.transpose(-2, -1)).float() / math.sqrt(q.size(-1))
    scores = scores.masked_fill(~keep, float("-inf"))
    return torch.softmax(scores, dim=-1).to(q.dtype) @ v
