"""A causal window of keys, w + 1 with the row's own.

After: pytorch-labs/attention-gym, masks/sliding_window. Edits: mask.
"""

from torch.nn.attention.flex_attention import and_masks


def attention_mods(window_size: int = 1024):
    def sliding_window(b, h, q_idx, kv_idx):
        return q_idx - kv_idx <= window_size

    def causal_mask(b, h, q_idx, kv_idx):
        return q_idx >= kv_idx

    return and_masks(sliding_window, causal_mask)
