"""A prefix per batch seen by all, causal after it.

After: pytorch-labs/attention-gym, masks/prefix_lm with lengths. Edits: mask, inputs.
"""

from jaxtyping import Int32
from torch import Tensor


def attention_mods(prefix_length: Int32[Tensor, "B"]):
    def prefix_lm(b, h, q_idx, kv_idx):
        return (kv_idx < prefix_length[b]) | (q_idx >= kv_idx)

    return prefix_lm
