"""Text tokens see the image that came last before them; those without an image see none.

After: lucidrains/flamingo-pytorch, MaskedCrossAttention. Edits: mask, inputs.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def attention(
    q: Float[Tensor, "b h i d"],
    k: Float[Tensor, "b h j d"],
    v: Float[Tensor, "b h j d"],
    media_locations: Bool[Tensor, "b i"],
    per_image: int = 64,
) -> Float[Tensor, "b h i d"]:
    sim = torch.einsum("b h i d, b h j d -> b h i j", q * q.shape[-1] ** -0.5, k)
    text_time = media_locations.cumsum(dim=-1)
    media_time = torch.arange(k.shape[2], device=q.device) // per_image + 1
    keep = text_time[:, None, :, None] == media_time[None, None, None, :]
    sim = sim.masked_fill(~keep, -torch.finfo(sim.dtype).max)
    sim = sim - sim.amax(dim=-1, keepdim=True).detach()
    attn = sim.softmax(dim=-1)
    without = (text_time == 0)[:, None, :, None]
    attn = attn.masked_fill(without, 0.0)
    return torch.einsum("b h i j, b h j d -> b h i d", attn, v)
