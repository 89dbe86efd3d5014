"""An inner mask over positions that are counted from each document's start.

After: pytorch-labs/attention-gym, generate_doc_mask_mod. Edits: mask, inputs.
"""

import torch
from jaxtyping import Int32
from torch import Tensor


def attention_mods(offsets: Int32[Tensor, "S"], N: int, window: int = 8):
    counts = offsets[1:] - offsets[:-1]
    document_id = torch.repeat_interleave(torch.arange(len(counts)), counts, output_size=N)

    def inner(b, h, q_idx, kv_idx):
        return (q_idx >= kv_idx) & (q_idx - kv_idx <= window)

    def mask_mod(b, h, q_idx, kv_idx):
        same = document_id[q_idx] == document_id[kv_idx]
        q_local = q_idx - offsets[document_id[q_idx]]
        kv_local = kv_idx - offsets[document_id[kv_idx]]
        return same & inner(b, h, q_local, kv_local)

    return mask_mod
