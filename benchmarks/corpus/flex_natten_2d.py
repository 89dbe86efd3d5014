"""A two-dimensional neighbourhood whose centre stays inside the image.

After: pytorch-labs/attention-gym, masks/natten. Edits: mask.
"""


def attention_mods(H: int = 32, W: int = 32, K_H: int = 7, K_W: int = 7):
    def natten_mask(b, h, q_idx, kv_idx):
        q_x, q_y = q_idx // W, q_idx % W
        kv_x, kv_y = kv_idx // W, kv_idx % W
        center_x = q_x.clamp(K_H // 2, (H - 1) - K_H // 2)
        center_y = q_y.clamp(K_W // 2, (W - 1) - K_W // 2)
        horizontal = (center_x - kv_x).abs() <= K_H // 2
        vertical = (center_y - kv_y).abs() <= K_W // 2
        return horizontal & vertical

    return natten_mask
