"""Some heads see a window, others all; padded keys are seen by none.

After: hybrid heads of MiMo and Hymba with FlexAttention. Edits: mask, inputs.
"""

from jaxtyping import Bool, Int32
from torch import Tensor


def attention_mods(lengths: Int32[Tensor, "B"], is_local: Bool[Tensor, "Hq"], window: int = 64):
    def mask(b, h, q_idx, kv_idx):
        near = q_idx - kv_idx < window
        return (q_idx >= kv_idx) & (kv_idx < lengths[b]) & (~is_local[h] | near)

    return mask
