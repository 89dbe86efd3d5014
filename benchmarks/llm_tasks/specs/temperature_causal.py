"""Causal attention whose scores have a temperature that grows with the row, as Llama 4 has."""

# ruff: noqa: F722
import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B Hq N D"],
    k: Float[Tensor, "B Hkv N D"],
    v: Float[Tensor, "B Hkv N D"],
    slope: float = 0.1,
    floor: float = 512.0,
) -> Float[Tensor, "B Hq N D"]:
    group = q.size(1) // k.size(1)
    k = k.repeat_interleave(group, dim=1)
    v = v.repeat_interleave(group, dim=1)
    i = torch.arange(q.size(-2), device=q.device)
    heat = torch.log1p(torch.floor((i.float() + 1.0) / floor)) * slope + 1.0
    scores = (q @ k.transpose(-2, -1)).float() * q.size(-1) ** -0.5 * heat[:, None]
    scores = scores.masked_fill(i[None, :] > i[:, None], float("-inf"))
    return torch.softmax(scores, dim=-1).to(q.dtype) @ v
