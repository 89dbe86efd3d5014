"""A Python loop over the batch, each sequence's own keys by its mask.

After: batches of unequal sets in published graph and point-cloud code. Edits: mask, inputs.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B N H D"],
    k: Float[Tensor, "B N H D"],
    v: Float[Tensor, "B N H D"],
    mask: Bool[Tensor, "B N"],
) -> Float[Tensor, "B N H D"]:
    outs = []
    for b in range(q.shape[0]):
        s = torch.einsum("qhd,khd->hqk", q[b], k[b]) * q.shape[-1] ** -0.5
        s = s.masked_fill(~mask[b][None, None, :], float("-inf"))
        outs.append(torch.einsum("hqk,khd->qhd", torch.softmax(s, -1), v[b]))
    return torch.stack(outs)
