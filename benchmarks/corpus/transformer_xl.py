"""Scores of content and of relative position, the latter shifted into place.

After: kimiyoung/transformer-xl, RelPartialLearnableMultiHeadAttn. Edits: before.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B H N D"],
    k: Float[Tensor, "B H N D"],
    v: Float[Tensor, "B H N D"],
    r: Float[Tensor, "H N D"],
    r_w_bias: Float[Tensor, "H D"],
    r_r_bias: Float[Tensor, "H D"],
) -> Float[Tensor, "B H N D"]:
    b, h, n, d = q.shape
    content = (q + r_w_bias[:, None]) @ k.mT
    position = (q + r_r_bias[:, None]) @ r.mT
    padded = torch.cat([torch.zeros(b, h, n, 1, dtype=q.dtype), position], dim=-1)
    position = padded.view(b, h, n + 1, n)[:, :, 1:]
    scores = (content + position) / d**0.5
    future = torch.ones(n, n, dtype=torch.bool, device=q.device).triu(1)
    return torch.softmax(scores.masked_fill(future, float("-inf")), -1) @ v
