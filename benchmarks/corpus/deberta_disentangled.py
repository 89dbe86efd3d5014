"""Content to position and position to content: two gathers of products are added to the scores.

After: transformers, models/deberta_v2, disentangled_attention_bias. Edits: before.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B H N D"],
    k: Float[Tensor, "B H N D"],
    v: Float[Tensor, "B H N D"],
    pos_key: Float[Tensor, "H 64 D"],
    pos_query: Float[Tensor, "H 64 D"],
) -> Float[Tensor, "B H N D"]:
    b, h, n, d = q.shape
    scale = (3 * d) ** 0.5
    t = torch.arange(n, device=q.device)
    relative = (t[:, None] - t[None, :]).clamp(-32, 31) + 32
    scores = q @ k.mT / scale
    index = relative.expand(b, h, n, n)
    scores = scores + torch.gather(q @ pos_key.mT, -1, index) / scale
    scores = scores + torch.gather(k @ pos_query.mT, -1, index).mT / scale
    return torch.softmax(scores, -1) @ v
