"""ALiBi from the cumulative sum of the padding mask, added by baddbmm; slopes by pow of arange.

After: transformers, models/bloom, build_alibi_tensor and BloomAttention. Edits: score, mask, inputs.
"""

import math

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn


def build_alibi(attention_mask: Tensor, num_heads: int, dtype: torch.dtype) -> Tensor:
    batch, length = attention_mask.shape
    closest = 2 ** math.floor(math.log2(num_heads))
    base = torch.tensor(2 ** (-(2 ** -(math.log2(closest) - 3))), dtype=torch.float32)
    powers = torch.arange(1, 1 + closest, dtype=torch.int32)
    slopes = torch.pow(base, powers)
    if closest != num_heads:
        extra = torch.tensor(2 ** (-(2 ** -(math.log2(2 * closest) - 3))), dtype=torch.float32)
        remaining = min(closest, num_heads - closest)
        extra_powers = torch.arange(1, 1 + 2 * remaining, 2, dtype=torch.int32)
        slopes = torch.cat([slopes, torch.pow(extra, extra_powers)], dim=0)
    positions = ((attention_mask.cumsum(dim=-1) - 1) * attention_mask)[:, None, :]
    alibi = slopes[..., None] * positions
    return alibi.reshape(batch * num_heads, 1, length).to(dtype)


def attention(
    query: Float[Tensor, "B H N D"],
    key: Float[Tensor, "B H N D"],
    value: Float[Tensor, "B H N D"],
    attention_mask: Int64[Tensor, "B N"],  # 0..1
) -> Float[Tensor, "B H N D"]:
    batch, heads, n, d = query.shape
    alibi = build_alibi(attention_mask, heads, query.dtype)
    scores = alibi.baddbmm(
        batch1=query.reshape(-1, n, d),
        batch2=key.reshape(-1, n, d).transpose(-1, -2),
        beta=1.0,
        alpha=1.0 / math.sqrt(d),
    )
    scores = scores.view(batch, heads, n, n)
    causal = torch.ones(n, n, dtype=torch.bool, device=query.device).tril()
    kept = causal & (attention_mask[:, None, None, :] != 0)
    scores = scores.masked_fill(~kept, torch.finfo(scores.dtype).min)
    probs = nn.functional.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
    context = torch.bmm(probs.view(-1, n, n), value.reshape(-1, n, d))
    return context.view(batch, heads, n, d)
