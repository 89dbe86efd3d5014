"""A cache with a length per batch; the queries are its last rows.

After: flash-attn, flash_attn_with_kvcache (cache_seqlens, causal) as eager code.
Edits: mask, inputs.
"""

import torch
from jaxtyping import Float, Int32
from torch import Tensor


def attention(
    q: Float[Tensor, "B Nq H D"],
    k_cache: Float[Tensor, "B Nk H D"],
    v_cache: Float[Tensor, "B Nk H D"],
    cache_seqlens: Int32[Tensor, "B"],
) -> Float[Tensor, "B Nq H D"]:
    n_q, n_k = q.shape[1], k_cache.shape[1]
    row = torch.arange(n_q, device=q.device)[:, None]
    col = torch.arange(n_k, device=q.device)[None, :]
    length = cache_seqlens.view(-1, 1, 1, 1)
    scores = torch.einsum("bthd,bshd->bhts", q * q.shape[-1] ** -0.5, k_cache)
    scores = scores.masked_fill(col > row + length - n_q, float("-inf"))
    weights = torch.softmax(scores, dim=-1).to(v_cache.dtype)
    weights = weights.masked_fill((col > row + length - n_q).all(-1, keepdim=True), 0.0)
    return torch.einsum("bhts,bshd->bthd", weights, v_cache)
