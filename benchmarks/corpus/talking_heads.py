"""The scores of all heads are mixed before and after the softmax.

After: lucidrains/x-transformers, talking heads; timm, CaiT. Edits: refused (heads are mixed).
"""

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B H N D"],
    k: Float[Tensor, "B H N D"],
    v: Float[Tensor, "B H N D"],
    before: Float[Tensor, "H H"],
) -> Float[Tensor, "B H N D"]:
    attn = q @ k.mT * q.shape[-1] ** -0.5
    attn = torch.einsum("bhij,hg->bgij", attn, before)
    return attn.softmax(-1) @ v
