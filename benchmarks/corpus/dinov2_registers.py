"""Attention of a vision transformer with five tokens before the patches.

After: facebookresearch/dinov2, Attention. Edits: none.
"""

from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B N H D"],
    k: Float[Tensor, "B N H D"],
    v: Float[Tensor, "B N H D"],
) -> Float[Tensor, "B N H*D"]:
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    q = q * q.shape[-1] ** -0.5
    attn = q @ k.transpose(-2, -1)
    attn = attn.softmax(dim=-1)
    return (attn @ v).transpose(1, 2).flatten(2)
