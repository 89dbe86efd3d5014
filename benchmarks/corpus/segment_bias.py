"""A bias by the segments of the row and the key, and a padding mask.

After: segment biases of encoders (XLNet-like relative segments). Edits: score, mask, inputs.
"""

import torch
from jaxtyping import Float, Int64
from torch import Tensor


def attention(
    q: Float[Tensor, "B H N D"],
    k: Float[Tensor, "B H N D"],
    v: Float[Tensor, "B H N D"],
    segment: Int64[Tensor, "B N"],  # 0..1
    seg_bias: Float[Tensor, "H 2"],
    lengths: Int64[Tensor, "B"],
) -> Float[Tensor, "B H N D"]:
    different = (segment[:, :, None] != segment[:, None, :]).long()
    scores = q @ k.mT * q.shape[-1] ** -0.5
    scores = scores + seg_bias[:, different].transpose(0, 1)
    pad = torch.arange(k.shape[2], device=q.device) >= lengths[:, None, None, None]
    return torch.softmax(scores.masked_fill(pad, float("-inf")), -1) @ v
