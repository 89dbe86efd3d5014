"""Neighbouring channels are rotated, with sines and cosines made from the positions.

After: transformers, models/gptj, rotate_every_two and create_sinusoidal_positions. Edits: before.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def rotate_every_two(x: Tensor) -> Tensor:
    return torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)


def attention(
    q: Float[Tensor, "B N H D"],
    k: Float[Tensor, "B N H D"],
    v: Float[Tensor, "B N H D"],
) -> Float[Tensor, "B H N D"]:
    n, d = q.shape[1], q.shape[-1]
    frequency = 1.0 / (10000 ** (torch.arange(0, d, 2, device=q.device) / d))
    angle = torch.arange(n, device=q.device)[:, None] * frequency[None, :]
    sin = angle.sin().repeat_interleave(2, -1)[None, :, None, :].to(q.dtype)
    cos = angle.cos().repeat_interleave(2, -1)[None, :, None, :].to(q.dtype)
    q = (q * cos + rotate_every_two(q) * sin).permute(0, 2, 1, 3)
    k = (k * cos + rotate_every_two(k) * sin).permute(0, 2, 1, 3)
    causal = torch.ones(n, n, dtype=torch.bool, device=q.device).tril()
    scores = (q.float() @ k.float().mT) / d**0.5
    scores = torch.where(causal, scores, torch.finfo(torch.float32).min)
    return torch.softmax(scores, -1).to(v.dtype) @ v.permute(0, 2, 1, 3)
