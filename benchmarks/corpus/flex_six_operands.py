"""Documents, segments, validity of rows and keys, a head's flag and a table in one mask.

After: joint packing masks of BAGEL and Show-o style training. Edits: mask, inputs.
"""

from jaxtyping import Bool, Int32
from torch import Tensor


def attention_mods(
    doc: Int32[Tensor, "B N"],
    kind: Int32[Tensor, "B N"],
    valid: Bool[Tensor, "B N"],
    noisy: Bool[Tensor, "B N"],
    is_global: Bool[Tensor, "Hq"],
):
    def mask(b, h, q_idx, kv_idx):
        same = doc[b, q_idx] == doc[b, kv_idx]
        full = (kind[b, q_idx] == kind[b, kv_idx]) & (kind[b, q_idx] > 0)
        seen = (q_idx >= kv_idx) | full
        return same & (seen | is_global[h]) & valid[b, kv_idx] & ~(noisy[b, kv_idx] & ~full)

    return mask
