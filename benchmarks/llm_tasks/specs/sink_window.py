"""A sink of fixed weight per row beside a causal sliding window with softcap."""

# ruff: noqa: F722
import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B Hq Nq D"],
    k: Float[Tensor, "B Hkv Nk D"],
    v: Float[Tensor, "B Hkv Nk D"],
    window: int = 72,
    softcap: float = 30.0,
    sink: float = 1.5,
) -> Float[Tensor, "B Hq Nq D"]:
    group = q.size(1) // k.size(1)
    k = k.repeat_interleave(group, dim=1)
    v = v.repeat_interleave(group, dim=1)
    scores = (q @ k.transpose(-2, -1)).float() * q.size(-1) ** -0.5
    scores = softcap * torch.tanh(scores / softcap)
    n_q, n_k = q.size(-2), k.size(-2)
    i = torch.arange(n_q, device=q.device)[:, None] + (n_k - n_q)
    j = torch.arange(n_k, device=q.device)[None, :]
    keep = (j <= i) & (i - j < window)
    scores = scores.masked_fill(~keep, float("-inf"))
    extra = scores.new_full((*scores.shape[:-1], 1), sink)
    weights = torch.softmax(torch.cat([scores, extra], dim=-1), dim=-1)[..., :-1]
    return weights.to(q.dtype) @ v
