"""A key padding mask and a float attention mask merged, on batch x heads.

After: PyTorch, nn.functional.multi_head_attention_forward. Edits: mask, inputs.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B H L E"],
    k: Float[Tensor, "B H S E"],
    v: Float[Tensor, "B H S E"],
    key_padding_mask: Bool[Tensor, "B S"],
    attn_mask: Float[Tensor, "L S"],
) -> Float[Tensor, "B H L E"]:
    bsz, num_heads, tgt_len, _ = q.shape
    src_len = k.shape[2]
    key_padding = torch.zeros_like(key_padding_mask, dtype=q.dtype)
    key_padding = key_padding.masked_fill_(key_padding_mask, float("-inf"))
    key_padding = key_padding.view(bsz, 1, 1, src_len).expand(-1, num_heads, -1, -1)
    key_padding = key_padding.reshape(bsz * num_heads, 1, src_len)
    mask = attn_mask.unsqueeze(0) + key_padding
    q = q.reshape(bsz * num_heads, tgt_len, -1)
    k = k.reshape(bsz * num_heads, src_len, -1)
    v = v.reshape(bsz * num_heads, src_len, -1)
    q_scaled = q * math.sqrt(1.0 / float(q.shape[-1]))
    weights = torch.baddbmm(mask, q_scaled, k.transpose(-2, -1))
    weights = torch.softmax(weights, dim=-1)
    return torch.bmm(weights, v).view(bsz, num_heads, tgt_len, -1)
