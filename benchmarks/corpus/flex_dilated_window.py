"""Every d-th key of a window, in both directions.

After: pytorch-labs/attention-gym, masks/dilated_sliding_window. Edits: mask.
"""


def attention_mods(window_size: int = 64, dilation: int = 4):
    def dilated(b, h, q_idx, kv_idx):
        diff = abs(q_idx - kv_idx)
        return (diff <= window_size) & (diff % dilation == 0)

    return dilated
