"""Inputs named as a kernel's own values are: m, b, x, l, s.

After: research code of many hands. Edits: score, mask, inputs.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def attention(
    x: Float[Tensor, "B H N D"],
    y: Float[Tensor, "B H M D"],
    z: Float[Tensor, "B H M D"],
    m: Bool[Tensor, "B M"],
    b: Float[Tensor, "H N M"],
) -> Float[Tensor, "B H N D"]:
    s = x @ y.mT / x.shape[-1] ** 0.5 + b
    return torch.softmax(s.masked_fill(~m[:, None, None], float("-inf")), -1) @ z
