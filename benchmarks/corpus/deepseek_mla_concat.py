"""The same with q and k concatenated from their two parts.

After: transformers, models/deepseek_v3, DeepseekV3Attention. Edits: before.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q_nope: Float[Tensor, "B H N 128"],
    q_pe: Float[Tensor, "B H N 64"],
    k_nope: Float[Tensor, "B H N 128"],
    k_pe: Float[Tensor, "B 1 N 64"],
    v: Float[Tensor, "B H N 128"],
) -> Float[Tensor, "B H N 128"]:
    k_pe = k_pe.expand(*k_nope.shape[:-1], -1)
    q = torch.cat((q_nope, q_pe), dim=-1)
    k = torch.cat((k_nope, k_pe), dim=-1)
    return torch.nn.functional.scaled_dot_product_attention(
        q, k, v, is_causal=True, scale=192**-0.5
    )
