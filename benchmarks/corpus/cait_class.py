"""One query, that of the class token, over all tokens.

After: timm, ClassAttn. Edits: none.
"""

from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B 1 H D"],
    k: Float[Tensor, "B N H D"],
    v: Float[Tensor, "B N H D"],
) -> Float[Tensor, "B 1 H*D"]:
    q, k, v = (t.permute(0, 2, 1, 3) for t in (q, k, v))
    q = q * q.shape[-1] ** -0.5
    attn = (q @ k.transpose(-2, -1)).softmax(dim=-1)
    return (attn @ v).transpose(1, 2).flatten(2)
