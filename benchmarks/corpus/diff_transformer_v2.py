"""Heads in pairs, the second one subtracted by a factor for each token.

After: microsoft/unilm, Diff-Transformer V2. Edits: after, mask.
"""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def attention(
    q1: Float[Tensor, "B N H D"],
    q2: Float[Tensor, "B N H D"],
    k: Float[Tensor, "B N Hkv D"],
    v: Float[Tensor, "B N Hkv D"],
    lam: Float[Tensor, "B N H"],
) -> Float[Tensor, "B N H D"]:
    group = q1.shape[2] // k.shape[2]
    k, v = (t.repeat_interleave(group, 2).transpose(1, 2) for t in (k, v))
    first, second = (
        F.scaled_dot_product_attention(q.transpose(1, 2), k, v, is_causal=True) for q in (q1, q2)
    )
    return (first - lam.sigmoid().transpose(1, 2)[..., None] * second).transpose(1, 2)
