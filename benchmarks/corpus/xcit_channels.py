"""Columns attend to columns: cross-covariance attention.

After: facebookresearch/xcit, XCA. Edits: score.
"""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B H D N"],
    k: Float[Tensor, "B H D N"],
    v: Float[Tensor, "B H D N"],
    temperature: Float[Tensor, "H"],
) -> Float[Tensor, "B H D N"]:
    q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    attn = (q @ k.transpose(-2, -1)) * temperature[:, None, None]
    return attn.softmax(dim=-1) @ v
