"""Layer norm of q and k per head with weights and biases.

After: timm, vision_transformer.Attention with qk_norm. Edits: before.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B H N 64"],
    k: Float[Tensor, "B H N 64"],
    v: Float[Tensor, "B H N 64"],
    q_weight: Float[Tensor, "64"],
    q_bias: Float[Tensor, "64"],
    k_weight: Float[Tensor, "64"],
    k_bias: Float[Tensor, "64"],
) -> Float[Tensor, "B H N 64"]:
    q = F.layer_norm(q, (64,), q_weight, q_bias, 1e-6)
    k = F.layer_norm(k, (64,), k_weight, k_bias, 1e-6)
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)
