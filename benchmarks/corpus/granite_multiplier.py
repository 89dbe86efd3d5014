"""The scale is a number of the configuration.

After: transformers, GraniteAttention. Edits: score, mask.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B Hq Nq D"],
    k: Float[Tensor, "B Hkv Nk D"],
    v: Float[Tensor, "B Hkv Nk D"],
    mask: Float[Tensor, "B 1 Nq Nk"],
    attention_multiplier: float = 0.0078125,
) -> Float[Tensor, "B Nq Hq D"]:
    n_rep = q.shape[1] // k.shape[1]
    key, value = k.repeat_interleave(n_rep, 1), v.repeat_interleave(n_rep, 1)
    weights = torch.matmul(q, key.transpose(2, 3)) * attention_multiplier
    weights = weights + mask[:, :, :, : key.shape[-2]]
    weights = F.softmax(weights, dim=-1, dtype=torch.float32).to(q.dtype)
    return torch.matmul(weights, value).transpose(1, 2).contiguous()
