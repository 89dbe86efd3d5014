"""What flash_fwd_sm80 computes: full attention, in eager PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor


def attention(
    q: Float[Tensor, "B Hq Nq D"],
    k: Float[Tensor, "B Hkv Nk D"],
    v: Float[Tensor, "B Hkv Nk D"],
    scale: float = 0.17,  # not 1 / sqrt(D), so that a kernel that hard-codes its scale is seen
) -> Float[Tensor, "B Hq Nq D"]:
    """softmax(scale q k^T) v; query head h uses key head h // (Hq // Hkv)."""
    group = q.shape[1] // k.shape[1]
    k = k.repeat_interleave(group, dim=1)
    v = v.repeat_interleave(group, dim=1)
    scores = torch.matmul(q, k.transpose(-2, -1)) * scale
    return torch.matmul(torch.softmax(scores, dim=-1), v)
