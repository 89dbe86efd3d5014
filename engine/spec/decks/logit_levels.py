"""Rows of logits that are all far below 0, all far above it, or all the same; and small ones.

Normal draws lie around 0, where a running maximum that begins at 0 and one that begins at -inf are
the same. What is drawn here is exact in every element type, and equal within a group of keys, so
that PyTorch in low precision gives the same output as in float64 and its error excuses nobody.

Standard library and torch only: the GPU worker uses it too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from engine.spec.recipes.recipe import places_of

LEVEL, FAR, EVEN = "level", "far", "even"
LEVELS = (-2048.0, 2048.0, -16384.0, 16384.0)
"""q.k of a row's better keys or worse ones; the others have it twice: float16 ends at 65504."""
FARTHEST = (-131072.0, 131072.0)  # in float64 alone
_FIRST = 2.0  # what the first half of the keys has for the others' 1


def at_levels(role: str, value: Tensor, dims: Sequence[str], kind: str) -> Tensor:
    """Normal draws of q or k (`role`) with `dims` as a kind of values has them; others as they are.

    "level": q.k is one of `LEVELS` by row, and twice that for the first half of the keys: with the
    level below 0 the first tiles are the lower ones, above 0 the later ones are. "far": the same
    with the draws beside it, and rows of `FARTHEST` without, for runs in float64. "even": q is 0.
    """
    rows = next((n for n, d in enumerate(dims) if d in ("Nq", "Nk")), None)
    columns = places_of(dims)[-1]
    if kind not in (LEVEL, FAR, EVEN) or role not in ("q", "k") or rows is None or columns is None:
        return value
    out = value.clone()
    last = out.movedim((rows, columns), (-2, -1))
    count = last.shape[-2]
    place = torch.arange(count, device=value.device)
    if role == "k":
        if last.shape[-1]:
            last[..., 0] = torch.where(place < count // 2, _FIRST, 1.0).to(value.dtype)
        return out
    if kind == EVEN or not last.shape[-1]:
        return out.zero_()
    levels = LEVELS if kind == LEVEL else (*LEVELS, *FARTHEST)
    level = torch.tensor(levels, dtype=value.dtype, device=value.device)[place % len(levels)]
    alone = level.abs() > max(LEVELS) if kind == FAR else torch.ones_like(place, dtype=torch.bool)
    last.masked_fill_(alone[:, None], 0.0)
    last[..., 0] = level
    return out


FACTORS = (1.0, 2.0**-5, 2.0**-10, 2.0**-15, 2.0**-20)


def factor_that_shows(weights_at: Callable[[float], Tensor], least: float) -> float:
    """The largest of `FACTORS` that shows the most pairs: a score that is a large multiple of q.k
    leaves most weights at 0, as if masked, and what is kept does not hang on how large q is.

    Args:
        weights_at: The weights of the pairs that may show where q is that factor of what it was.
        least: From which weight on a pair shows.
    """
    best, most = FACTORS[0], -1
    for factor in FACTORS:
        weights = weights_at(factor)
        shown = int((weights.abs() >= least).sum())
        if shown > most:
            best, most = factor, shown
        if shown == weights.numel():
            break
    return best
