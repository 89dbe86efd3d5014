"""The output is gated elementwise by a sigmoid.

After: transformers, models/qwen3_next, Qwen3NextAttention. Edits: after.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    query: Float[Tensor, "B Hq N D"],
    key: Float[Tensor, "B Hkv N D"],
    value: Float[Tensor, "B Hkv N D"],
    gate: Float[Tensor, "B N Hq D"],
) -> Float[Tensor, "B N Hq D"]:
    out = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, is_causal=True, enable_gqa=True
    )
    return out.transpose(1, 2) * torch.sigmoid(gate)
