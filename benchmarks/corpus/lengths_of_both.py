"""Valid queries and keys by lengths per batch, as text and image encoders make masks.

After: huggingface/parler-tts and espnet, make_pad_mask. Edits: mask, inputs.
"""

import torch
from jaxtyping import Float, Int64
from torch import Tensor


def attention(
    q: Float[Tensor, "B H Nq D"],
    k: Float[Tensor, "B H Nk D"],
    v: Float[Tensor, "B H Nk D"],
    lengths: Int64[Tensor, "B"],
) -> Float[Tensor, "B H Nq D"]:
    pad = torch.arange(k.shape[2], device=q.device)[None, :] >= lengths[:, None]
    mask = pad[:, None, None, :]
    scores = torch.matmul(q, k.transpose(-2, -1)) / q.shape[-1] ** 0.5
    lowest = torch.finfo(scores.dtype).min
    scores = scores.masked_fill(mask, lowest)
    attn = torch.softmax(scores, dim=-1).masked_fill(mask, 0.0)
    return torch.matmul(attn, v)
