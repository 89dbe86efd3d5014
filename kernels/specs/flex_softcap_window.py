"""FlexAttention: softcapped scores in a causal sliding window, as in Gemma 2's local layers.

s = softcap * tanh(s / softcap); keep(i, j) = 0 <= i - j < window. Top-left, as FlexAttention's
indices are absolute.
"""

import torch


def attention_mods(softcap: float = 50.0, window: int = 1024):
    def score_mod(score, b, h, q_idx, kv_idx):
        return softcap * torch.tanh(score / softcap)

    def mask_mod(b, h, q_idx, kv_idx):
        return (q_idx >= kv_idx) & (q_idx - kv_idx < window)

    return score_mod, mask_mod
