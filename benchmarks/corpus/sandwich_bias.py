"""A bias of cosines of the distance, one ratio per head.

After: chijames/Sandwich (sinusoids as relative bias). Edits: score, mask.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B H N D"],
    k: Float[Tensor, "B H N D"],
    v: Float[Tensor, "B H N D"],
    base: int = 10000,
    terms: int = 64,
) -> Float[Tensor, "B H N D"]:
    heads, n = q.shape[1], q.shape[2]
    frequency = 1.0 / base ** (2 * torch.arange(1, terms + 1, device=q.device) / (2 * terms))
    t = torch.arange(n, device=q.device)
    distance = t[:, None] - t[None, :]
    bias = torch.cos(distance[..., None] * frequency).sum(-1)
    ratio = torch.arange(1, heads + 1, device=q.device) * 8 / heads
    scores = q @ k.mT / q.shape[-1] ** 0.5 + (bias[None] * ratio[:, None, None]).to(q.dtype)
    return torch.softmax(scores.masked_fill(distance < 0, float("-inf")), -1) @ v
