"""Two products of q with embeddings of the row's and column's distance, added to the scores.

After: facebookresearch/segment-anything, add_decomposed_rel_pos. Edits: before.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B 64 D"],
    k: Float[Tensor, "B 64 D"],
    v: Float[Tensor, "B 64 D"],
    rel_pos_h: Float[Tensor, "15 D"],
    rel_pos_w: Float[Tensor, "15 D"],
) -> Float[Tensor, "B 64 D"]:
    b, _, d = q.shape
    attn = (q * d**-0.5) @ k.transpose(-2, -1)
    distance = torch.arange(8)[:, None] - torch.arange(8)[None, :] + 7
    grid = q.reshape(b, 8, 8, d)
    rel_h = torch.einsum("bhwc,hkc->bhwk", grid, rel_pos_h[distance])
    rel_w = torch.einsum("bhwc,wkc->bhwk", grid, rel_pos_w[distance])
    attn = attn.view(b, 8, 8, 8, 8) + rel_h[:, :, :, :, None] + rel_w[:, :, :, None, :]
    return attn.view(b, 64, 64).softmax(-1) @ v
