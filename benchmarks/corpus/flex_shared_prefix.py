"""Causal within a document, and all of a prefix document that a map names.

After: pytorch-labs/attention-gym, masks/shared_prefix. Edits: mask, inputs.
"""

from jaxtyping import Int32
from torch import Tensor


def attention_mods(document_id: Int32[Tensor, "N"], prefix_of: Int32[Tensor, "N"]):
    def mask(b, h, q_idx, kv_idx):
        own = (document_id[q_idx] == document_id[kv_idx]) & (q_idx >= kv_idx)
        return own | (document_id[kv_idx] == prefix_of[q_idx])

    return mask
