"""Which blocks of keys each query sees is an input; causal within.

After: MoonshotAI/MoBA, moba_naive with its gate given. Edits: mask, inputs.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B H Nq D"],
    k: Float[Tensor, "B H Nk D"],
    v: Float[Tensor, "B H Nk D"],
    gate: Bool[Tensor, "B H Nq 64"],
    chunk: int = 64,
) -> Float[Tensor, "B H Nq D"]:
    i = torch.arange(q.shape[2], device=q.device)[:, None] + k.shape[2] - q.shape[2]
    j = torch.arange(k.shape[2], device=q.device)[None, :]
    chosen = gate[..., (torch.arange(k.shape[2], device=q.device) // chunk).clamp(max=63)]
    keep = (chosen | (i // chunk == j // chunk)) & (j <= i)
    scores = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(~keep, float("-inf"))
    return torch.softmax(scores, -1) @ v
