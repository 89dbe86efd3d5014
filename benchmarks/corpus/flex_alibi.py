"""ALiBi as a score mod with the slopes computed per head.

After: pytorch-labs/attention-gym, mods/alibi. Edits: score.
"""

import torch


def attention_mods(Hq: int):
    def alibi(score, b, h, q_idx, kv_idx):
        scale = torch.exp2(-((h + 1) * 8.0 / Hq))
        bias = (kv_idx - q_idx) * scale
        return score + bias

    return alibi
