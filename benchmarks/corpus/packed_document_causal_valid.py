"""Documents of a packed batch, causal, without the padding.

After: pytorch/torchtune, packed_block_causal_mask with padding. Edits: mask, inputs.
"""

import torch
from jaxtyping import Bool, Float, Int32
from torch import Tensor


def attention(
    q: Float[Tensor, "B H N D"],
    k: Float[Tensor, "B H N D"],
    v: Float[Tensor, "B H N D"],
    document_ids: Int32[Tensor, "B N"],
    valid: Bool[Tensor, "B N"],
) -> Float[Tensor, "B H N D"]:
    idx = torch.arange(q.shape[2], device=q.device)
    keep = document_ids[:, :, None] == document_ids[:, None, :]
    keep = keep & (idx[:, None] >= idx[None, :]) & valid[:, None, :] & valid[:, :, None]
    scores = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(~keep[:, None], float("-inf"))
    return torch.softmax(scores, -1).nan_to_num(0.0) @ v
