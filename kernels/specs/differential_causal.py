"""Differential attention: the difference of two causal attentions, normalised per head.

Both attentions have the same values. The second one's weights are subtracted times a learned number
per head, and each row is divided by its root mean square, after Ye et al. (arXiv 2410.05258). A
model that projects both halves at once passes views of them, such as `q[:, 0::2]` and `q[:, 1::2]`.
"""

import torch
from jaxtyping import Float, Float32
from torch import Tensor


def attention(
    q1: Float[Tensor, "B Hq Nq D"],
    k1: Float[Tensor, "B Hkv Nk D"],
    v: Float[Tensor, "B Hkv Nk D"],
    q2: Float[Tensor, "B Hq Nq D"],
    k2: Float[Tensor, "B Hkv Nk D"],
    lam: Float32[Tensor, "Hq"],
    weight: Float[Tensor, "D"],
    lambda_init: float = 0.8,
    eps: float = 1e-5,
) -> Float[Tensor, "B Hq Nq D"]:
    group = q1.size(1) // k1.size(1)
    n_q, n_k = q1.size(-2), k1.size(-2)
    i = torch.arange(n_q, device=q1.device)[:, None] + n_k - n_q
    future = torch.arange(n_k, device=q1.device)[None, :] > i

    def weights(q: Tensor, k: Tensor) -> Tensor:
        k = k.repeat_interleave(group, dim=1)
        scores = q.float() @ k.float().transpose(-2, -1) * q.size(-1) ** -0.5
        return torch.softmax(scores.masked_fill(future, float("-inf")), dim=-1)

    both = weights(q1, k1) - lam[:, None, None] * weights(q2, k2)
    out = both @ v.repeat_interleave(group, dim=1).float()
    out = out * torch.rsqrt(out.pow(2).mean(-1, keepdim=True) + eps)
    return ((1 - lambda_init) * weight.float() * out).to(q1.dtype)
