"""How outputs are compared with the spec's: element by element, NaN never equal.

Runs in the torch child only.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from engine.gates.runs.subject import Failure

EXACT_TOLERANCE = 1e-10  # of each row's largest magnitude
# Where a score adds several numbers of 1e9: float64 has 7 digits after the point there, and which
# of them are right hangs on the order, that of the spec or another as good.
SUMMED_TOLERANCE = 1e-6
LSE_TOLERANCE = 5e-3  # typed mode: scores are products of rounded inputs, summed in float32


def rows_equal(
    got: Tensor, want: Tensor, what: str, tolerance: float = EXACT_TOLERANCE
) -> tuple[Failure | None, float]:
    """Largest error over each row's largest magnitude."""
    if want.numel() == 0:
        return None, 0.0
    scale = want.abs().amax(-1, keepdim=True).clamp_min(1e-30)
    error = ((got - want).abs() / scale).nan_to_num(math.inf, math.inf)
    worst = float(error.max())
    if worst <= tolerance:
        return None, worst
    # The row first: a wrong mask clusters by row.
    rows = error.amax(-1)
    b, h, i = (int(x) for x in torch.unravel_index(rows.argmax(), rows.shape))
    d = int(error[b, h, i].argmax())
    wrong = int((rows > tolerance).sum())
    example = {
        "b": b, "h": h, "i": i, "d": d,
        "expected": float(want[b, h, i, d]), "got": float(got[b, h, i, d]),
        "wrong_rows": wrong, "rows": rows.numel(),
    }  # fmt: skip
    reason = (
        f"{what} is wrong in {wrong} of {rows.numel()} rows: at b={b}, h={h}, i={i} expected "
        f"{example['expected']:.6g}, got {example['got']:.6g}"
    )
    return Failure(reason, counterexample=example), worst


def lse_equal(got: Tensor, want: Tensor, what: str = "LSE") -> tuple[Failure | None, float]:
    if want.numel() == 0:
        return None, 0.0
    both = torch.isneginf(got) & torch.isneginf(want)
    error = ((got - want).abs() / want.abs().clamp_min(1.0)).nan_to_num(math.inf, math.inf)
    error = error.masked_fill(both, 0.0)
    worst = float(error.max())
    if worst <= EXACT_TOLERANCE:
        return None, worst
    b, h, i = (int(x) for x in torch.unravel_index(error.argmax(), error.shape))
    example = {"b": b, "h": h, "i": i, "expected": float(want[b, h, i]), "got": float(got[b, h, i])}
    reason = (
        f"{what} is wrong: at b={b}, h={h}, i={i} expected {example['expected']:.6g}, "
        f"got {example['got']:.6g}"
    )
    return Failure(reason, counterexample=example), worst


def roundoff(dtype: torch.dtype) -> float:
    """The unit roundoff of a format. What the largest |O| may meet by it is allowed, as in G4, and
    not what it happened to meet: where O is V itself (one key) PyTorch is exact, and a kernel that
    rounds weights before it normalises them is not."""
    return float(torch.finfo(dtype).eps) / 2


def typed_lse(got: Tensor, want: Tensor) -> tuple[Failure | None, float]:
    both = torch.isneginf(got) & torch.isneginf(want)
    error = (got - want).abs().masked_fill(both, 0.0).nan_to_num(math.inf, math.inf)
    worst = float(error.max()) if error.numel() else 0.0
    bound = LSE_TOLERANCE * max(
        1.0, float(want.masked_fill(both, 0.0).abs().max()) if want.numel() else 1.0
    )
    if worst > bound:
        return Failure(f"LSE is off by {worst:.3g} in typed mode"), worst
    return None, worst
