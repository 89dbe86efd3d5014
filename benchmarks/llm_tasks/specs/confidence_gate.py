"""Confidence gate: O is multiplied by sigmoid of the row's own log-sum-exp less a threshold."""

# ruff: noqa: F722
import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B Hq Nq D"],
    k: Float[Tensor, "B Hkv Nk D"],
    v: Float[Tensor, "B Hkv Nk D"],
    threshold: float = 3.0,
) -> Float[Tensor, "B Hq Nq D"]:
    group = q.size(1) // k.size(1)
    k = k.repeat_interleave(group, dim=1)
    v = v.repeat_interleave(group, dim=1)
    scores = (q @ k.transpose(-2, -1)).float() * q.size(-1) ** -0.5
    confidence = torch.sigmoid(torch.logsumexp(scores, dim=-1, keepdim=True) - threshold)
    o = torch.softmax(scores, dim=-1) * confidence
    return o.to(q.dtype) @ v
