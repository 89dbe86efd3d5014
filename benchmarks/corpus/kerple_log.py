"""A learned logarithmic kernel of the distance per head.

After: chijames/KERPLE, ParallelKerpleLog. Edits: score, mask, inputs.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B H N D"],
    k: Float[Tensor, "B H N D"],
    v: Float[Tensor, "B H N D"],
    bias_p: Float[Tensor, "H 1 1"],
    bias_a: Float[Tensor, "H 1 1"],
) -> Float[Tensor, "B H N D"]:
    n = q.shape[2]
    t = torch.arange(n, device=q.device)
    diff = torch.tril(t.view(n, 1).repeat(1, n) + (t * -1))
    p = bias_p.clamp(min=1e-2)
    a = bias_a.clamp(min=1e-2)
    bias = -p * torch.log(1 + a * diff)
    scores = q @ k.mT / q.shape[-1] ** 0.5 + bias
    future = torch.ones(n, n, dtype=torch.bool, device=q.device).triu(1)
    return torch.softmax(scores.masked_fill(future, -10000.0), -1) @ v
