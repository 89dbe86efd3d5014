"""Causal attention whose output is normalised per head, as differential attention's and RetNet's are.

Each row of a head's output is divided by its root mean square and multiplied by learned weights
(Zhang and Sennrich, arXiv 1910.07467; Ye et al., arXiv 2410.05258).
"""

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B Hq Nq D"],
    k: Float[Tensor, "B Hkv Nk D"],
    v: Float[Tensor, "B Hkv Nk D"],
    weight: Float[Tensor, "D"],
    eps: float = 1e-5,
) -> Float[Tensor, "B Hq Nq D"]:
    group = q.size(1) // k.size(1)
    k = k.repeat_interleave(group, dim=1)
    v = v.repeat_interleave(group, dim=1)
    n_q, n_k = q.size(-2), k.size(-2)
    scores = q.float() @ k.float().transpose(-2, -1) * q.size(-1) ** -0.5
    i = torch.arange(n_q, device=q.device)[:, None] + n_k - n_q
    j = torch.arange(n_k, device=q.device)[None, :]
    out = torch.softmax(scores.masked_fill(j > i, float("-inf")), dim=-1) @ v.float()
    out = out * torch.rsqrt(out.pow(2).mean(-1, keepdim=True) + eps)
    return (weight.float() * out).to(q.dtype)
