"""Prefix-LM within the documents of a packed batch.

Part 2 d of a sequence is the prefix of document d, part 2 d + 1 its continuation; the parts stand
one after another. keep(i, j) = the same document, and part(j) is a prefix or j <= i: a document's
prefix is seen by all of it, its continuation causally.
"""

import math

import torch
from jaxtyping import Float, Int32
from torch import Tensor


def attention(
    q: Float[Tensor, "B Hq N D"],
    k: Float[Tensor, "B Hkv N D"],
    v: Float[Tensor, "B Hkv N D"],
    part: Int32[Tensor, "B N"],
) -> Float[Tensor, "B Hq N D"]:
    group = q.size(1) // k.size(1)
    k = k.repeat_interleave(group, dim=1)
    v = v.repeat_interleave(group, dim=1)
    n = q.size(-2)
    causal = torch.ones(n, n, dtype=torch.bool, device=q.device).tril()
    document = part // 2
    same = document[:, None, :, None] == document[:, None, None, :]
    prefix = part[:, None, None, :] % 2 == 0
    keep = same & (prefix | causal)
    scores = (q @ k.transpose(-2, -1)).float() / math.sqrt(q.size(-1))
    scores = scores.masked_fill(~keep, float("-inf"))
    return torch.softmax(scores, dim=-1).to(q.dtype) @ v
