"""Any number of biases: a mask made additive, and a pair bias.

After: aqlaboratory/openfold, primitives._attention. Edits: score, mask, inputs.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B H Q C"],
    k: Float[Tensor, "B H K C"],
    v: Float[Tensor, "B H K C"],
    mask: Float[Tensor, "B 1 1 K"],
    pair_bias: Float[Tensor, "1 H Q K"],
    inf: float = 1e9,
) -> Float[Tensor, "B H Q C"]:
    biases = [inf * (mask - 1), pair_bias]
    q = q / q.shape[-1] ** 0.5
    a = torch.matmul(q, k.transpose(-1, -2))
    for b in biases:
        a = a + b
    a = torch.nn.functional.softmax(a, -1)
    return torch.matmul(a, v)
