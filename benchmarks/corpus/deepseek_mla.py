"""Multi-head latent attention, expanded: parts without and with positions, the latter shared by heads.

After: deepseek-ai/DeepSeek-V3, MLA with attn_impl "naive". Edits: before.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q_nope: Float[Tensor, "B N H 128"],
    q_pe: Float[Tensor, "B N H 64"],
    k_nope: Float[Tensor, "B N H 128"],
    k_pe: Float[Tensor, "B N 64"],
    v: Float[Tensor, "B N H 128"],
) -> Float[Tensor, "B N H 128"]:
    n = q_nope.shape[1]
    scores = torch.einsum("bshd,bthd->bsht", q_nope, k_nope)
    scores = scores + torch.einsum("bshr,btr->bsht", q_pe, k_pe)
    scores = scores * 192**-0.5
    mask = torch.full((n, n), float("-inf"), device=q_nope.device).triu_(1)
    scores = scores + mask.unsqueeze(1)
    scores = scores.softmax(dim=-1, dtype=torch.float32).type_as(q_nope)
    return torch.einsum("bsht,bthd->bshd", scores, v)
