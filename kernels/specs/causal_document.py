"""Causal attention within the documents of a packed batch, as in packed pre-training.

keep(i, j) = doc_q(i) == doc_k(j) and j <= i + Nk - Nq (bottom-right).
`doc_q` and `doc_k` hold a document number per token.
"""

import math

import torch
from jaxtyping import Float, Int32
from torch import Tensor


def attention(
    q: Float[Tensor, "B Hq Nq D"],
    k: Float[Tensor, "B Hkv Nk D"],
    v: Float[Tensor, "B Hkv Nk D"],
    doc_q: Int32[Tensor, "B Nq"],
    doc_k: Int32[Tensor, "B Nk"],
) -> Float[Tensor, "B Hq Nq D"]:
    group = q.size(1) // k.size(1)
    k = k.repeat_interleave(group, dim=1)
    v = v.repeat_interleave(group, dim=1)
    n_q, n_k = q.size(-2), k.size(-2)
    i = torch.arange(n_q, device=q.device)[:, None] + n_k - n_q
    j = torch.arange(n_k, device=q.device)[None, :]
    same = doc_q[:, :, None] == doc_k[:, None, :]
    keep = (same & (j <= i))[:, None]
    scores = (q @ k.transpose(-2, -1)).float() / math.sqrt(q.size(-1))
    scores = scores.masked_fill(~keep, float("-inf"))
    return torch.softmax(scores, dim=-1).to(q.dtype) @ v
