"""Relative positions of patches with three more entries for the class token.

After: timm, beit.Attention and gen_relative_position_index. Edits: score, inputs.
"""

import torch
from jaxtyping import Float
from torch import Tensor

GRID = (8, 8)


def gen_index(height: int, width: int) -> Tensor:
    count = (2 * height - 1) * (2 * width - 1) + 3
    area = height * width
    coords = torch.stack(torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij"))
    flat = torch.flatten(coords, 1)
    relative = flat[:, :, None] - flat[:, None, :]
    relative = relative.permute(1, 2, 0).contiguous()
    relative[:, :, 0] += height - 1
    relative[:, :, 1] += width - 1
    relative[:, :, 0] *= 2 * width - 1
    index = torch.zeros(size=(area + 1,) * 2, dtype=relative.dtype)
    index[1:, 1:] = relative.sum(-1)
    index[0, 0:] = count - 3
    index[0:, 0] = count - 2
    index[0, 0] = count - 1
    return index


def attention(
    q: Float[Tensor, "B H 65 D"],
    k: Float[Tensor, "B H 65 D"],
    v: Float[Tensor, "B H 65 D"],
    relative_position_bias_table: Float[Tensor, "228 H"],
) -> Float[Tensor, "B H 65 D"]:
    index = gen_index(*GRID)
    area = GRID[0] * GRID[1] + 1
    bias = relative_position_bias_table[index.view(-1)].view(area, area, -1)
    bias = bias.permute(2, 0, 1).contiguous().unsqueeze(0)
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
