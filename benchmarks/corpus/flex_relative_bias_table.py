"""A learned bias of the clamped distance per head.

After: FlexAttention's blog, relative position with a captured table. Edits: score, inputs.
"""

from jaxtyping import Float32
from torch import Tensor


def attention_mods(table: Float32[Tensor, "Hq 129"]):
    def relative(score, b, h, q_idx, kv_idx):
        return score + table[h, (kv_idx - q_idx).clamp(-64, 64) + 64]

    return relative
