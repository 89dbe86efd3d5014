"""Shifted windows: the mask of each window of an image is repeated over the images of the batch.

After: microsoft/Swin-Transformer, WindowAttention with mask. Edits: score, mask, inputs.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def index() -> Tensor:
    coords = torch.stack(torch.meshgrid(torch.arange(4), torch.arange(4), indexing="ij")).flatten(1)
    relative = (coords[:, :, None] - coords[:, None, :]).permute(1, 2, 0) + 3
    return relative[..., 0] * 7 + relative[..., 1]


def attention(
    q: Float[Tensor, "12 H 16 D"],
    k: Float[Tensor, "12 H 16 D"],
    v: Float[Tensor, "12 H 16 D"],
    table: Float[Tensor, "49 H"],
    mask: Float[Tensor, "4 16 16"],
) -> Float[Tensor, "12 H 16 D"]:
    b_, h, n, d = q.shape
    attn = (q * d**-0.5) @ k.transpose(-2, -1)
    attn = attn + table[index().view(-1)].view(n, n, -1).permute(2, 0, 1).unsqueeze(0)
    windows = mask.shape[0]
    attn = attn.view(b_ // windows, windows, h, n, n) + mask.unsqueeze(1).unsqueeze(0)
    attn = attn.view(-1, h, n, n)
    return torch.softmax(attn, dim=-1) @ v
