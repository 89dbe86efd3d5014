"""Rows of a table attend to those of the training set alone.

After: PriorLabs/TabPFN, MultiHeadAttention over items. Edits: mask.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int32
from torch import Tensor


def attention(
    q: Float[Tensor, "B H N D"],
    k: Float[Tensor, "B H N D"],
    v: Float[Tensor, "B H N D"],
    single_eval_pos: Int32[Tensor, "B"],
) -> Float[Tensor, "B H N D"]:
    train = torch.arange(k.shape[2], device=k.device)[None, :] < single_eval_pos[:, None]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=train[:, None, None, :])
