"""Share question: causal within a sample; answers see the question (segment 0) and themselves."""

# ruff: noqa: F722
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
    scores = (q @ k.transpose(-2, -1)).float() * q.size(-1) ** -0.5
    n = q.size(-2)
    j = torch.arange(n, device=q.device)[None, :]
    row = torch.arange(n, device=q.device)[:, None]
    same = segment[:, None, None, :] == segment[:, None, :, None]
    keep = (j <= row) & (same | (segment[:, None, None, :] == 0))
    scores = scores.masked_fill(~keep, float("-inf"))
    return torch.softmax(scores, dim=-1).to(q.dtype) @ v
