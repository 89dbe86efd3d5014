"""The heads are merged at the end: [B, N, H * D].

After: timm, vision_transformer.Attention. Edits: after.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B H N D"],
    k: Float[Tensor, "B H N D"],
    v: Float[Tensor, "B H N D"],
):
    b, h, n, d = q.shape
    x = torch.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=0.0)
    return x.transpose(1, 2).reshape(b, n, h * d)
