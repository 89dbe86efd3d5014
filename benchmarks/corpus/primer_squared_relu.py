"""Squared ReLU of causal scores, as some long-sequence layers weigh keys.

After: lucidrains/FLASH-pytorch, attention of the gated unit. Edits: weight, mask.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "b n d"],
    k: Float[Tensor, "b n d"],
    v: Float[Tensor, "b n e"],
) -> Float[Tensor, "b n e"]:
    n = q.shape[1]
    sim = torch.einsum("b i d, b j d -> b i j", q, k) / n
    attn = F.relu(sim) ** 2
    causal_mask = torch.ones((n, n), dtype=torch.bool, device=q.device).triu(1)
    attn = attn.masked_fill(causal_mask, 0.0)
    return torch.einsum("b i j, b j d -> b i d", attn, v)
