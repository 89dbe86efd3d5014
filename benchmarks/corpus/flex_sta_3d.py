"""Tiles of a video see the tiles around them in three dimensions; text is seen by all.

After: pytorch-labs/attention-gym, masks/sta. Edits: mask.
"""

import torch


def attention_mods(T: int = 4, H: int = 8, W: int = 8, tile: int = 2, window: int = 1):
    image = T * H * W

    def place(index):
        tiles = index // tile**3
        per_row, per_plane = W // tile, (W // tile) * (H // tile)
        return tiles // per_plane, tiles % per_plane // per_row, tiles % per_row

    def sta(b, h, q_idx, kv_idx):
        q_t, q_h, q_w = place(q_idx)
        k_t, k_h, k_w = place(kv_idx)
        near = (q_t - k_t).abs() <= window
        near = near & ((q_h - k_h).abs() <= window) & ((q_w - k_w).abs() <= window)
        is_image = (q_idx < image) & (kv_idx < image)
        return torch.where(is_image, near, True)

    return sta
