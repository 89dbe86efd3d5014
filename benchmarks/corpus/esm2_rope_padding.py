"""The scale goes to q before its rotary embedding; padding is the type's least number.

After: transformers, EsmSelfAttention. Edits: before, mask, inputs.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int32
from torch import Tensor


def rotate_half(x: Tensor) -> Tensor:
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((-x2, x1), dim=-1)


def attention(
    q: Float[Tensor, "B H N D"],
    k: Float[Tensor, "B H N D"],
    v: Float[Tensor, "B H N D"],
    attention_mask: Int32[Tensor, "B N"],  # 0..1
) -> Float[Tensor, "B N H D"]:
    n, dim = q.shape[-2:]
    inv_freq = 1.0 / (10000 ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim))
    freqs = torch.outer(torch.arange(n, dtype=torch.float32), inv_freq)
    emb = torch.cat((freqs, freqs), dim=-1)
    cos, sin = emb.cos()[None, None], emb.sin()[None, None]
    query = q * dim**-0.5
    query = query * cos + rotate_half(query) * sin
    key = k * cos + rotate_half(k) * sin
    extended = (1.0 - attention_mask[:, None, None, :].to(q.dtype)) * torch.finfo(q.dtype).min
    probs = F.softmax(query @ key.transpose(-1, -2) + extended, dim=-1)
    return (probs @ v).permute(0, 2, 1, 3)
