"""A tree of draft tokens: entry and exit times of a walk say who is whose ancestor.

After: attention-gym and open-source tree drafting with FlexAttention. Edits: mask, inputs.
"""

from jaxtyping import Int32
from torch import Tensor


def attention_mods(entered: Int32[Tensor, "N"], left: Int32[Tensor, "N"]):
    def tree_mask(b, h, q_idx, kv_idx):
        return (entered[kv_idx] <= entered[q_idx]) & (left[kv_idx] >= left[q_idx])

    return tree_mask
