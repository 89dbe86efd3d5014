"""Causal within documents whose ids are a captured tensor.

After: pytorch-labs/attention-gym, masks/document_mask. Edits: mask, inputs.
"""

from jaxtyping import Int32
from torch import Tensor


def attention_mods(document_id: Int32[Tensor, "B N"]):
    def doc_mask_wrapper(b, h, q_idx, kv_idx):
        same_doc = document_id[b, q_idx] == document_id[b, kv_idx]
        return same_doc & (q_idx >= kv_idx)

    return doc_mask_wrapper
