"""RMS norm of q and k over all heads at once.

After: diffusers, WanAttnProcessor. Edits: before.
"""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B N H D"],
    k: Float[Tensor, "B N H D"],
    v: Float[Tensor, "B N H D"],
    q_weight: Float[Tensor, "H D"],
    k_weight: Float[Tensor, "H D"],
) -> Float[Tensor, "B N H D"]:
    def norm(x: Tensor, weight: Tensor) -> Tensor:
        flat = x.flatten(2)
        return F.rms_norm(flat, (flat.shape[-1],), weight.flatten(), 1e-6).unflatten(2, x.shape[2:])

    q, k = norm(q, q_weight), norm(k, k_weight)
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2)
