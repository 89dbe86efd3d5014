"""An inner mask over positions that are counted from each document's start.

After: pytorch-labs/attention-gym, generate_doc_mask_mod. Edits: mask, inputs.
"""

from jaxtyping import Int32
from torch import Tensor


def attention_mods(document_id: Int32[Tensor, "N"], first_of: Int32[Tensor, "N"], window: int = 8):
    def inner(b, h, q_idx, kv_idx):
        return (q_idx >= kv_idx) & (q_idx - kv_idx <= window)

    def mask_mod(b, h, q_idx, kv_idx):
        same = document_id[q_idx] == document_id[kv_idx]
        q_local = q_idx - first_of[document_id[q_idx]]
        kv_local = kv_idx - first_of[document_id[kv_idx]]
        return same & inner(b, h, q_local, kv_local)

    return mask_mod
