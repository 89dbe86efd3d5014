"""Document attention on a packed batch: keep(i, j) = doc(i) == doc(j), in both directions.

`doc_q` and `doc_k` hold a document number per token. A query of a document without keys keeps none.
"""

import math

import torch
from jaxtyping import Float, Int32
from torch import Tensor


def attention(
    q: Float[Tensor, "B Hq Nq D"],
    k: Float[Tensor, "B Hkv Nk D"],
    v: Float[Tensor, "B Hkv Nk D"],
    doc_q: Int32[Tensor, "B Nq"],
    doc_k: Int32[Tensor, "B Nk"],
) -> Float[Tensor, "B Hq Nq D"]:
    group = q.size(1) // k.size(1)
    k = k.repeat_interleave(group, dim=1)
    v = v.repeat_interleave(group, dim=1)
    scores = (q @ k.transpose(-2, -1)).float() / math.sqrt(q.size(-1))
    same = doc_q[:, None, :, None] == doc_k[:, None, None, :]
    scores = torch.where(same, scores, float("-inf"))
    return torch.softmax(scores, dim=-1).to(q.dtype) @ v
