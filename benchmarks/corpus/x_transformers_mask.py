"""A key mask, an attention mask and a causal mask joined as lists of what is masked.

After: lucidrains/x-transformers, Attend. Edits: mask, inputs.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def attention(
    q: Float[Tensor, "b h i d"],
    k: Float[Tensor, "b h j d"],
    v: Float[Tensor, "b h j d"],
    mask: Bool[Tensor, "b j"],
    attn_mask: Bool[Tensor, "i j"],
) -> Float[Tensor, "b h i d"]:
    n_i, n_j = q.shape[-2], k.shape[-2]
    dots = torch.einsum("b h i d, b h j d -> b h i j", q, k) * q.shape[-1] ** -0.5
    mask_value = -torch.finfo(dots.dtype).max
    masks = [~mask[:, None, None, :], ~attn_mask]
    masks.append(torch.ones((n_i, n_j), dtype=torch.bool, device=q.device).triu(n_j - n_i + 1))
    final = masks[0]
    for other in masks[1:]:
        final = final | other
    dots = dots.masked_fill(final, mask_value)
    return torch.einsum("b h i j, b h j d -> b h i d", torch.softmax(dots, dim=-1), v)
