"""A window, and global tokens that see and are seen by all.

After: allenai/longformer, as a dense mask. Edits: mask, inputs.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B H N D"],
    k: Float[Tensor, "B H N D"],
    v: Float[Tensor, "B H N D"],
    is_global: Bool[Tensor, "B N"],
    is_masked: Bool[Tensor, "B N"],
    one_sided_window: int = 256,
) -> Float[Tensor, "B H N D"]:
    t = torch.arange(q.shape[2], device=q.device)
    local = (t[:, None] - t[None, :]).abs() <= one_sided_window
    keep = local[None] | is_global[:, :, None] | is_global[:, None, :]
    keep = keep & ~is_masked[:, None, :]
    scores = (q / q.shape[-1] ** 0.5) @ k.transpose(-1, -2)
    scores = scores.masked_fill(~keep[:, None], torch.finfo(scores.dtype).min)
    return torch.softmax(scores, dim=-1, dtype=torch.float32).type_as(scores) @ v
