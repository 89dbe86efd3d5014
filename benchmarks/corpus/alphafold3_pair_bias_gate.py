"""A bias for each pair and head, a mask of keys, and a gate on the output.

After: lucidrains/alphafold3-pytorch, Attention with AttentionPairBias. Edits: score, mask, after.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B H N D"],
    k: Float[Tensor, "B H N D"],
    v: Float[Tensor, "B H N D"],
    pair_bias: Float[Tensor, "B H N N"],
    mask: Bool[Tensor, "B N"],
    gates: Float[Tensor, "B N H D"],
) -> Float[Tensor, "B N H*D"]:
    q = q * q.shape[-1] ** -0.5
    sim = torch.einsum("b h i d, b h j d -> b h i j", q, k) + pair_bias
    sim = sim.masked_fill(~mask[:, None, None, :], -torch.finfo(sim.dtype).max)
    attn = sim.softmax(dim=-1)
    out = torch.einsum("b h i j, b h j d -> b h i d", attn, v)
    out = out * gates.permute(0, 2, 1, 3).sigmoid()
    return out.permute(0, 2, 1, 3).flatten(2)
