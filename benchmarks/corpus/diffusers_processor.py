"""Cross attention by baddbmm with a mask over batch x heads.

After: diffusers, Attention.get_attention_scores and AttnProcessor. Edits: mask, inputs.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    query: Float[Tensor, "B N H D"],
    key: Float[Tensor, "B T H D"],
    value: Float[Tensor, "B T H D"],
    attention_mask: Float[Tensor, "B 1 T"],
) -> Float[Tensor, "B N H D"]:
    b, n, h, d = query.shape

    def to_batch(x: Tensor) -> Tensor:
        return x.permute(0, 2, 1, 3).reshape(b * h, x.shape[1], d)

    query, key, value = to_batch(query), to_batch(key), to_batch(value)
    mask = attention_mask.repeat_interleave(h, dim=0)
    scores = torch.baddbmm(
        mask.expand(-1, n, -1), query, key.transpose(-1, -2), beta=1, alpha=d**-0.5
    )
    probs = scores.softmax(dim=-1).to(query.dtype)
    out = torch.bmm(probs, value)
    return out.reshape(b, h, n, d).permute(0, 2, 1, 3)
