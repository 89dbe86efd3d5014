"""No scale, a local window made of two triangles by exclusive or.

After: transformers, models/gpt_neo, GPTNeoSelfAttention with attention_type "local".
Edits: score, mask.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn


def attention(
    query: Float[Tensor, "B H N D"],
    key: Float[Tensor, "B H N D"],
    value: Float[Tensor, "B H N D"],
    window_size: int = 256,
) -> Float[Tensor, "B H N D"]:
    n = query.size(-2)
    kept = torch.tril(torch.ones((n, n), dtype=torch.bool, device=query.device))
    kept = torch.bitwise_xor(kept, torch.tril(kept, -window_size))
    weights = torch.matmul(query.to(torch.float32), key.to(torch.float32).transpose(-1, -2))
    lowest = torch.tensor(torch.finfo(weights.dtype).min, dtype=weights.dtype)
    weights = torch.where(kept, weights, lowest)
    weights = nn.functional.softmax(weights, dim=-1).to(value.dtype)
    return torch.matmul(weights, value)
