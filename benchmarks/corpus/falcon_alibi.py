"""ALiBi added before the scale; slopes by arange and pow.

After: transformers, models/falcon, FalconAttention with alibi. Edits: score, mask.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    query: Float[Tensor, "B H N D"],
    key: Float[Tensor, "B H N D"],
    value: Float[Tensor, "B H N D"],
    attention_mask: Float[Tensor, "B 1 N N"],
) -> Float[Tensor, "B H N D"]:
    heads, n, d = query.shape[1:]
    closest = 2 ** math.floor(math.log2(heads))
    base = torch.tensor(2 ** (-(2 ** -(math.log2(closest) - 3))), dtype=torch.float32)
    slopes = torch.pow(base, torch.arange(1, 1 + closest, dtype=torch.int32))
    if closest != heads:
        extra = torch.tensor(2 ** (-(2 ** -(math.log2(2 * closest) - 3))), dtype=torch.float32)
        powers = torch.arange(1, 1 + 2 * (heads - closest), 2, dtype=torch.int32)
        slopes = torch.cat([slopes, torch.pow(extra, powers)], dim=0)
    alibi = slopes[:, None].bfloat16() * torch.arange(n)[None, :].bfloat16()
    scores = (query @ key.transpose(-1, -2)).to(torch.float32)
    logits = scores + alibi.view(1, heads, 1, -1)
    logits *= 1 / math.sqrt(d)
    probs = torch.softmax(logits + attention_mask, dim=-1, dtype=query.dtype)
    return probs @ value
