"""Scores capped by tanh, with a causal mask.

After: pytorch-labs/attention-gym, mods/softcapping. Edits: score, mask.
"""

import torch


def attention_mods(soft_cap: int = 20):
    def tanh_softcap(score, b, h, q_idx, kv_idx):
        return soft_cap * torch.tanh(score / soft_cap)

    def causal_mask(b, h, q_idx, kv_idx):
        return q_idx >= kv_idx

    return tanh_softcap, causal_mask
