"""FlashAttention-4 (`flash_attn.cute`) as a rival, where it is installed on the machine.

It is never a dependency: `pip install flash-attn-4`, or its folder on PYTHONPATH, lets it in. What
its function can say is full, causal and sliding-window softmax attention with a scale and a soft
cap; whether a recipe is one of these is read from the recipe's values, not from its form.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from engine.cuir.nodes import Expr, Index, Name, walk_expr
from engine.cuir.scalar import evaluate
from engine.gpu.worker.rivals import UNREAD_SPEC, Absent, Contestant, Mask
from engine.gpu.worker.specrun import SpecRun

NAME = "FlashAttention-4"
MODULE = "flash_attn.cute"
Window = tuple[int | None, int | None]


def fa4_rival(
    run: SpecRun, inputs: Mapping[str, Tensor], sizes: Mapping[str, int], mask: Mask
) -> Contestant | Absent:
    """`flash_attn_func` with the recipe's scale, cap and window, or why it does not take part."""
    recipe = run.recipe
    if recipe is None:
        return Absent(UNREAD_SPEC)
    if recipe.weight is not None:
        return Absent("its function is softmax attention; this recipe has weights of its own")
    cap_scale = cap_of(recipe.score, sizes)
    if cap_scale is None:
        return Absent("its function takes a scale and a soft cap, and no other score")
    window = window_of(run, inputs, sizes, mask)
    if window is None:
        return Absent("its function takes causal masks and sliding windows, and no other mask")
    try:
        function = importlib.import_module(MODULE).flash_attn_func
    except ImportError as error:
        missing = getattr(error, "name", None) or ""
        if missing.split(".")[0] in ("flash_attn", ""):
            return Absent("not installed (pip install flash-attn-4, or its folder on PYTHONPATH)")
        return Absent(f"does not import here: {error}")
    scale, cap = cap_scale
    causal = window == (None, 0)
    options: dict[str, Any] = {"softmax_scale": scale, "softcap": cap, "causal": causal}
    if not causal and window != (None, None):
        options["window_size"] = window

    def call(inputs: Mapping[str, Tensor]) -> Tensor:
        q, k, v = (run.canonical(inputs, role).transpose(1, 2) for role in ("q", "k", "v"))
        out = function(q, k, v, **options)
        o: Tensor = out[0] if isinstance(out, tuple) else out
        return o.transpose(1, 2)

    return call


def cap_of(score: Expr, sizes: Mapping[str, int]) -> tuple[float, float] | None:
    """(scale, cap) where the score is x * scale (cap 0) or cap * tanh(x * scale / cap), else None.

    Read from the score's values in float64: the cap is its limit, the scale its slope at 0; then
    the form must hold at every probe to 1e-9.
    """
    if any(
        isinstance(e, Index) or (isinstance(e, Name) and e.id in ("b", "h", "i", "j"))
        for e in walk_expr(score)
    ):
        return None

    def at(x: float) -> float:
        return float(evaluate(score, {**sizes, "x": x}))

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
    if any(
        isinstance(e, Index) or (isinstance(e, Name) and e.id in ("b", "h"))
        for e in walk_expr(keep)
    ):
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
