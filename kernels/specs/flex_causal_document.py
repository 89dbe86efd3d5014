"""FlexAttention: causal within documents, keep(i, j) = doc(p) == doc(j) and j <= p, p = i + Nk - Nq.

`doc` holds a document number per key; queries are the last Nq of the Nk tokens.
"""

from jaxtyping import Int32
from torch import Tensor


def attention_mods(doc: Int32[Tensor, "Nk"], Nq, Nk):
    def mask_mod(b, h, q_idx, kv_idx):
        position = q_idx + (Nk - Nq)
        return (doc[position] == doc[kv_idx]) & (kv_idx <= position)

    return mask_mod
