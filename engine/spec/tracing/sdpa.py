"""`scaled_dot_product_attention` written out in plain ops, as its documentation defines it."""

from __future__ import annotations

import math

import torch


def written_out(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """softmax(q k^T * scale + mask) v; `is_causal` is top-left, a false mask entry removes a pair.

    Rows whose every key is removed give 0, as current PyTorch does.
    """
    if dropout_p > 0.0:
        raise RuntimeError("dropout_p must be 0: a spec is a function of its inputs")
    if is_causal and attn_mask is not None:
        raise RuntimeError("scaled_dot_product_attention takes attn_mask or is_causal, not both")
    n_q, n_k = query.size(-2), key.size(-2)
    if enable_gqa:
        key = key.repeat_interleave(query.size(-3) // key.size(-3), -3)
        value = value.repeat_interleave(query.size(-3) // value.size(-3), -3)
    scores = (query @ key.transpose(-2, -1)) * (
        1 / math.sqrt(query.size(-1)) if scale is None else scale
    )
    if is_causal:
        attn_mask = torch.ones(n_q, n_k, dtype=torch.bool).tril(0)
    if attn_mask is None:
        return torch.softmax(scores, -1) @ value
    if attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(attn_mask.logical_not(), float("-inf"))
    else:
        scores = scores + attn_mask
    return torch.nan_to_num(torch.softmax(scores, -1), nan=0.0) @ value
