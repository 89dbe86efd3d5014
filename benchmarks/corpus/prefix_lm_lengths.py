"""Bidirectional within a prefix whose length each batch gives, causal after it.

After: THUDM/ChatGLM-6B, get_masks. Edits: mask, inputs.
"""

import torch
from jaxtyping import Float, Int64
from torch import Tensor


def attention(
    q: Float[Tensor, "B H N D"],
    k: Float[Tensor, "B H N D"],
    v: Float[Tensor, "B H N D"],
    context_lengths: Int64[Tensor, "B"],
) -> Float[Tensor, "B H N D"]:
    batch, n = q.shape[0], q.shape[2]
    attention_mask = torch.ones((batch, n, n), device=q.device)
    attention_mask.tril_()
    column = torch.arange(n, device=q.device)
    in_prefix = column[None, None, :] < context_lengths[:, None, None]
    attention_mask = torch.where(in_prefix, 1.0, attention_mask)
    attention_mask = (attention_mask.unsqueeze(1) < 0.5).bool()
    scores = torch.matmul(q / q.shape[-1] ** 0.5, k.transpose(-2, -1))
    scores.masked_fill_(attention_mask, -10000.0)
    probs = torch.softmax(scores.float(), dim=-1).type(q.dtype)
    return torch.matmul(probs, v)
