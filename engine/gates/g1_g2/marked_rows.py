"""Inputs at which a wrong bound shows: rows of four kinds, and V that says whose weight is whose.

With normal draws one key more or less of many is within what 16 bits excuse. Here a row's scores
are all far below 0, where a key of zeros takes the whole weight, or all far above it, beyond what
exp takes; the better half of its keys weigh the same. A key's row of V is 1 in one column, so that
O is the weights, and one key is a share of a column. Rows in between are drawn: normal, and times
10, where a cap is no line. PyTorch's error excuses rows of its own kind alone.

Runs in the torch child only.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from engine.spec.decks.deck_inputs import PEAK
from engine.spec.recipes.recipe import Recipe
from engine.spec.reference.oracle import canonical_layout

MARKED = "marked"
# q.k of a row's keys in the second half, which for those in the first is twice that; and what the
# row's draws are multiplied by. 2048 / sqrt(D) is beyond 88, where exp(float) ends, to D 512.
_ROWS = ((-2048.0, 0.0), (0.0, 1.0), (2048.0, 0.0), (0.0, PEAK))
_SHIFT = 7  # columns of V from one head to the next


def marked(asked: Recipe, inputs: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], Tensor]:
    """Normal draws made such inputs, and the kind of each row, [B, Hq, Nq]. The last row of the
    first head is far below 0: where a mask is aligned at the ends it alone has the last key."""
    out = {name: value.clone() for name, value in inputs.items()}
    q, k, v = (canonical_layout(asked, role, out) for role in "qkv")
    places = (torch.arange(n) for n in q.shape[:3])
    b, h, i = (p.reshape([-1 if a == n else 1 for a in range(3)]) for n, p in enumerate(places))
    kinds: Tensor = (q.shape[2] - 1 - i + b + h) % len(_ROWS)
    level, factor = torch.tensor(_ROWS, dtype=q.dtype).unbind(1)
    q *= factor[kinds][..., None]
    q[..., 0] = level[kinds]
    count = k.shape[2]
    k[..., 0] = torch.where(torch.arange(count) < count // 2, 2.0, 1.0).to(k.dtype)
    head = torch.arange(v.shape[0] * v.shape[1]).reshape(*v.shape[:2], 1)
    column = (torch.arange(v.shape[2]) + _SHIFT * head) % v.shape[3]
    v.zero_().scatter_(3, column[..., None], 1.0)
    return out, kinds
