"""A bias per head for each distinct offset of two points of a grid, found by a dictionary.

After: timm, levit.Attention. Edits: score, inputs.
"""

import itertools

import torch
from jaxtyping import Float
from torch import Tensor


def bias_idxs(resolution: int) -> Tensor:
    points = list(itertools.product(range(resolution), range(resolution)))
    offsets: dict[tuple[int, int], int] = {}
    idxs = []
    for first in points:
        for second in points:
            offset = (abs(first[0] - second[0]), abs(first[1] - second[1]))
            if offset not in offsets:
                offsets[offset] = len(offsets)
            idxs.append(offsets[offset])
    return torch.tensor(idxs, dtype=torch.long).view(len(points), len(points))


IDXS = bias_idxs(6)


def attention(
    q: Float[Tensor, "B H 36 D"],
    k: Float[Tensor, "B H 36 D"],
    v: Float[Tensor, "B H 36 Dv"],
    attention_biases: Float[Tensor, "H 36"],
) -> Float[Tensor, "B H 36 Dv"]:
    attn = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5 + attention_biases[:, IDXS]
    return attn.softmax(dim=-1) @ v
