"""Windows of 7 x 7 with a table of relative positions; no mask (windows that are not shifted).

After: microsoft/Swin-Transformer, WindowAttention. Edits: score, inputs.
"""

import torch
from jaxtyping import Float
from torch import Tensor

WINDOW = (7, 7)


def relative_position_index() -> Tensor:
    coords_h = torch.arange(WINDOW[0])
    coords_w = torch.arange(WINDOW[1])
    coords = torch.stack(torch.meshgrid([coords_h, coords_w], indexing="ij"))
    flat = torch.flatten(coords, 1)
    relative = flat[:, :, None] - flat[:, None, :]
    relative = relative.permute(1, 2, 0).contiguous()
    relative[:, :, 0] += WINDOW[0] - 1
    relative[:, :, 1] += WINDOW[1] - 1
    relative[:, :, 0] *= 2 * WINDOW[1] - 1
    return relative.sum(-1)


INDEX = relative_position_index()


def attention(
    q: Float[Tensor, "B H 49 D"],
    k: Float[Tensor, "B H 49 D"],
    v: Float[Tensor, "B H 49 D"],
    relative_position_bias_table: Float[Tensor, "169 H"],
) -> Float[Tensor, "B H 49 D"]:
    q = q * q.shape[-1] ** -0.5
    attn = q @ k.transpose(-2, -1)
    bias = relative_position_bias_table[INDEX.view(-1)].view(49, 49, -1)
    bias = bias.permute(2, 0, 1).contiguous()
    attn = attn + bias.unsqueeze(0)
    attn = torch.softmax(attn, dim=-1)
    return attn @ v
