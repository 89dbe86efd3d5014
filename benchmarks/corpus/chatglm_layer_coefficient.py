"""q is divided by a coefficient of the layer and the scores multiplied by it.

After: THUDM/ChatGLM-6B, attention_fn. Edits: score, mask.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def attention(
    query_layer: Float[Tensor, "sq b np hn"],
    key_layer: Float[Tensor, "sk b np hn"],
    value_layer: Float[Tensor, "sk b np hn"],
    attention_mask: Bool[Tensor, "b 1 sq sk"],
    layer_id: int = 3,
) -> Float[Tensor, "sq b np hn"]:
    coefficient = float(layer_id + 1)
    query_layer = query_layer / (math.sqrt(query_layer.shape[-1]) * coefficient)
    scores = torch.einsum("ibhd,jbhd->bhij", query_layer, key_layer)
    scores = scores.masked_fill(attention_mask, -10000.0)
    scores = scores.float()
    scores = scores * coefficient
    probs = torch.nn.functional.softmax(scores, dim=-1).type(query_layer.dtype)
    return torch.einsum("bhij,jbhd->ibhd", probs, value_layer)
