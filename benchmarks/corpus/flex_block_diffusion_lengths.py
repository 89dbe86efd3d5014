"""Blocks of tokens see their own and earlier blocks, up to each batch's length.

After: ML-GSAI/LLaDA and Dream with FlexAttention. Edits: mask, inputs.
"""

from jaxtyping import Int32
from torch import Tensor


def attention_mods(lengths: Int32[Tensor, "B"], block: int = 32):
    def mask(b, h, q_idx, kv_idx):
        return (q_idx // block >= kv_idx // block) & (kv_idx < lengths[b])

    return mask
