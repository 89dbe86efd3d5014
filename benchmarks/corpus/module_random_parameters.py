"""A module with parameters drawn at random; only its attention is called.

After: the common layout of published attention modules. Edits: mask.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class CausalSelfAttention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.register_buffer("bias", torch.tril(torch.ones(1024, 1024)).view(1, 1, 1024, 1024))

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        n = q.size(2)
        att = (q @ k.transpose(-2, -1)) / k.size(-1) ** 0.5
        att = att.masked_fill(self.bias[:, :, :n, :n] == 0, float("-inf"))
        return torch.softmax(att, dim=-1) @ v


layer = CausalSelfAttention(64).eval()


def attention(
    q: Float[Tensor, "B H N D"],
    k: Float[Tensor, "B H N D"],
    v: Float[Tensor, "B H N D"],
) -> Float[Tensor, "B H N D"]:
    return layer.attend(q, k, v)
