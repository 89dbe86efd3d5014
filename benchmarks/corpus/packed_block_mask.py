"""Packed windows of images: a mask filled block by block from the cumulative lengths.

After: transformers, models/qwen2_vl, VisionAttention (eager). Edits: mask, inputs.
"""

import torch
from jaxtyping import Float, Int32
from torch import Tensor, nn


def attention(
    q: Float[Tensor, "N H D"],
    k: Float[Tensor, "N H D"],
    v: Float[Tensor, "N H D"],
    cu_seqlens: Int32[Tensor, "S"],
) -> Float[Tensor, "N H D"]:
    n = q.shape[0]
    mask = torch.full([1, n, n], torch.finfo(q.dtype).min, device=q.device, dtype=q.dtype)
    for i in range(1, len(cu_seqlens)):
        mask[
            ..., cu_seqlens[i - 1] : cu_seqlens[i], cu_seqlens[i - 1] : cu_seqlens[i]
        ] = 0
    q, k, v = q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1)
    weights = torch.matmul(q, k.transpose(1, 2)) / q.shape[-1] ** 0.5 + mask
    weights = nn.functional.softmax(weights, dim=-1, dtype=torch.float32).to(q.dtype)
    return torch.matmul(weights, v).transpose(0, 1)
