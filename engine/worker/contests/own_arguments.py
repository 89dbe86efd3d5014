"""What of a recipe the arguments of attention functions say: a scale, a soft cap, a window.

Read from the recipe's values, not from its form, so that every way of writing one is seen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from engine.cuir.nodes import Expr, Index, names_in, walk_expr
from engine.cuir.scalar import evaluate
from engine.worker.contests.rivals import Mask
from engine.worker.problems.specrun import SpecRun

Window = tuple[int | None, int | None]


def cap_of(score: Expr, values: Mapping[str, float]) -> tuple[float, float] | None:
    """(scale, cap) where the score is x * scale (cap 0) or cap * tanh(x * scale / cap), else None.

    `values` are the sizes and the inputs without dimensions. Read from the score's values in
    float64: the cap is its limit, the scale its slope at 0; then the form must hold at every probe
    to 1e-9.
    """
    if {"b", "h", "i", "j"} & names_in(score) or _loads(score):
        return None

    def at(x: float) -> float:
        return float(evaluate(score, {**values, "x": x}))

    probes = [s * m for m in (1e-3, 0.1, 1.0, 7.0, 60.0, 900.0, 2e4) for s in (1.0, -1.0)]
    tiny = 1e-6
    scale, far = at(tiny) / tiny, at(1e12)
    if not (math.isfinite(scale) and scale > 0 and at(0.0) == 0.0):
        return None
    linear = all(math.isclose(at(x), scale * x, rel_tol=1e-9) for x in probes)
    if linear:
        return scale, 0.0
    if not (math.isfinite(far) and far > 0):
        return None
    scale = far * math.atanh(at(1.0) / far) if abs(at(1.0)) < far else 0.0
    capped = all(
        math.isclose(at(x), far * math.tanh(scale * x / far), rel_tol=1e-9) for x in probes
    )
    return (scale, far) if capped and scale > 0 else None


def _loads(expr: Expr) -> bool:
    return any(isinstance(e, Index) for e in walk_expr(expr))


def window_of(
    run: SpecRun, inputs: Mapping[str, Tensor], sizes: Mapping[str, int], mask: Mask
) -> Window | None:
    """(left, right) where exactly i + Nk - Nq - left <= j <= i + Nk - Nq + right is kept.

    None on a side is no bound; None alone is any other mask. Judged on every pair of every head
    that the predicate depends on.
    """
    if mask.kind == "full":
        return (None, None)
    if mask.kind == "causal":
        return (None, 0)
    if run.recipe is None:
        return None
    keep = run.recipe.keep
    if {"b", "h"} & names_in(keep) or _loads(keep):
        return None
    n_q, n_k = sizes["Nq"], sizes["Nk"]
    band = max(1, (1 << 25) // max(n_k, 1))
    j = torch.arange(n_k, device=run.device)[None, :]

    def rows(first: int) -> tuple[Tensor, Tensor]:
        """The kept pairs of a band, and j - i - (Nk - Nq) of each."""
        i = torch.arange(first, min(first + band, n_q), device=run.device)[:, None]
        with torch.device(run.device):
            value = evaluate(keep, {**sizes, "i": i, "j": j})
        kept = torch.as_tensor(value, device=run.device).broadcast_to(i.shape[0], n_k)
        return kept, j - i - (n_k - n_q)

    low, high = n_q + n_k, -n_q - n_k
    for first in range(0, n_q, band):
        kept, offset = rows(first)
        if bool(kept.any()):
            low = min(low, int(offset[kept].min()))
            high = max(high, int(offset[kept].max()))
    if low > high:
        return None
    for first in range(0, n_q, band):
        kept, offset = rows(first)
        if not torch.equal(kept, (offset >= low) & (offset <= high)):
            return None
    # An offset that reaches the first or the last pair bounds nothing.
    left = None if -low >= n_k - 1 else -low
    right = None if high >= n_q - 1 else high
    return (left, right)
