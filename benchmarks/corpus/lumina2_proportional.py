"""A scale that grows with the logarithm of the sequence.

After: diffusers, Lumina2AttnProcessor2_0. Edits: score, inputs.
"""

import math

import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B N Hq D"],
    k: Float[Tensor, "B N Hkv D"],
    v: Float[Tensor, "B N Hkv D"],
    mask: Bool[Tensor, "B N"],
    base_sequence_length: int = 1024,
) -> Float[Tensor, "B N Hq D"]:
    n = q.shape[1]
    scale = math.sqrt(math.log(n, base_sequence_length)) * q.shape[-1] ** -0.5
    n_rep = q.shape[2] // k.shape[2]
    k = k.unsqueeze(3).repeat(1, 1, 1, n_rep, 1).flatten(2, 3)
    v = v.unsqueeze(3).repeat(1, 1, 1, n_rep, 1).flatten(2, 3)
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :], scale=scale)
    return out.transpose(1, 2)
