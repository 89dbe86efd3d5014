"""Logits so small that the weight of every kept pair can be seen.

A score that is a large multiple of q.k leaves most weights at 0, as if the pairs were masked. What
a mask keeps does not hang on how large q is, so a probe of the mask may take a smaller one.

Standard library and torch only: the GPU worker uses it too.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

FACTORS = (1.0, 2.0**-5, 2.0**-10, 2.0**-15, 2.0**-20)


def factor_that_shows(weights_at: Callable[[float], Tensor], least: float) -> float:
    """The largest of `FACTORS` that shows the most pairs.

    Args:
        weights_at: The weights [B, Hq, Nq, Nk] where q is that factor of what it was.
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
