"""q and k are each scaled by D ** -0.25; the causal mask is a slice of a buffer.

After: openai/whisper, MultiHeadAttention.qkv_attention. Edits: score, mask.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

MASK = torch.empty(448, 448).fill_(float("-inf")).triu_(1)


def attention(
    q: Float[Tensor, "B N H D"],
    k: Float[Tensor, "B N H D"],
    v: Float[Tensor, "B N H D"],
) -> Float[Tensor, "B N H D"]:
    n_ctx, scale = q.shape[1], q.shape[-1] ** -0.25
    q = q.permute(0, 2, 1, 3) * scale
    k = k.permute(0, 2, 3, 1) * scale
    qk = q @ k
    qk = qk + MASK[:n_ctx, :n_ctx]
    w = F.softmax(qk.float(), dim=-1).to(q.dtype)
    return (w @ v.permute(0, 2, 1, 3)).permute(0, 2, 1, 3)
