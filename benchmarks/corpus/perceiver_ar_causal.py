"""Latents are the last queries of a longer causal sequence.

After: google-research/perceiver-ar, cross attention. Edits: mask.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B H Nq D"],
    k: Float[Tensor, "B H Nk D"],
    v: Float[Tensor, "B H Nk D"],
    pad: Bool[Tensor, "B Nk"],
) -> Float[Tensor, "B H Nq D"]:
    i, j = q.shape[2], k.shape[2]
    sim = torch.einsum("bhic,bhjc->bhij", q * q.shape[-1] ** -0.5, k)
    sim.masked_fill_(pad[:, None, None, :], -torch.finfo(sim.dtype).max)
    causal = torch.ones(i, j, device=q.device, dtype=torch.bool).triu(j - i + 1)
    sim.masked_fill_(causal, -torch.finfo(sim.dtype).max)
    return torch.einsum("bhij,bhjc->bhic", sim.softmax(dim=-1), v)
