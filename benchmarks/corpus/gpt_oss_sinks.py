"""A learned logit per head joins the softmax and is dropped after it.

After: transformers, models/gpt_oss, eager_attention_forward. Edits: after, mask.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    query: Float[Tensor, "B H N D"],
    key: Float[Tensor, "B H N D"],
    value: Float[Tensor, "B H N D"],
    sinks: Float[Tensor, "H"],
    sliding_window: int = 128,
) -> Float[Tensor, "B N H D"]:
    n = query.shape[2]
    logits = torch.matmul(query, key.transpose(2, 3)) * query.shape[-1] ** -0.5
    t = torch.arange(n, device=query.device)
    keep = (t[None] <= t[:, None]) & (t[None] > t[:, None] - sliding_window)
    logits = logits.masked_fill(~keep, float("-inf"))
    sink = sinks.reshape(1, -1, 1, 1).expand(query.shape[0], -1, n, -1)
    combined = torch.cat([logits, sink], dim=-1)
    combined = combined - combined.max(dim=-1, keepdim=True).values
    probs = torch.softmax(combined, dim=-1)
    scores = probs[..., :-1]
    return torch.matmul(scores, value).transpose(1, 2)
