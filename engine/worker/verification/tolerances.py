"""When a number is right: FlashAttention's rule for O, and the rule for LSE.

FlashAttention's own tests accept an error of at most twice that of PyTorch running the same
function in the same precision, plus the rounding of the result (three times where the score is
capped by the hardware's approximate tanh). The same rule is applied a second time to errors
relative to each row's natural size, sum_j |w_ij v_j|, since a mask bug in rows of small values
hides behind the largest element.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.worker.problems.specrun import unit

FACTOR, FACTOR_TANH = 2.0, 3.0
LSE_ABSOLUTE, LSE_RELATIVE = 1e-4, 2e-6
TANH_RELATIVE = 2.0**-10.9  # PTX ISA, tanh.approx.f32: maximum relative error 2^-10.987


@dataclass(frozen=True)
class Judged:
    """Errors as shares of what is allowed (at most 1 is right), and where the worst one is."""

    share: float
    row_share: float
    error: float
    allowed: float
    rms: float
    where: tuple[int, ...]

    @property
    def ok(self) -> bool:
        return self.share <= 1.0 and self.row_share <= 1.0


def judge_output(
    o: Tensor, exact: Tensor, low: Tensor, magnitude: Tensor, live: Tensor, factor: float
) -> Judged:
    """O against the oracle on every element of live rows; all [B, Hq, Nq, Dv], `live` [B, Hq, Nq].

    `low` is PyTorch's result in O's precision, `magnitude` sum_j |w_ij v_jd|.
    """
    if not bool(live.any()):
        return Judged(0.0, 0.0, 0.0, 0.0, 0.0, ())
    mask = live[..., None]
    u = unit(o.dtype)
    error = _clean((o.double() - exact).abs(), mask)
    of_low = _clean((low.double() - exact).abs(), mask)
    # The rounding that the largest element may meet, not what happened to meet it: where O is V
    # itself (one key), PyTorch and the rounded result are exact, and a kernel that rounds weights
    # before it normalises them is not.
    rounding = u * _finite_max(_clean(exact.abs(), mask))
    worst = float(error.max())
    allowed = factor * _finite_max(of_low) + 2 * rounding
    natural = magnitude.amax(-1).clamp(min=torch.finfo(o.dtype).tiny)
    rows = error.amax(-1) / natural
    low_rows = of_low.amax(-1) / natural
    row_allowed = factor * _finite_max(low_rows) + 4 * u
    norm = float((exact * mask).square().sum().sqrt())
    rms = float(error.square().sum().sqrt()) / norm if norm > 0 else 0.0
    at = int(error.argmax())
    where = tuple(int(i) for i in torch.unravel_index(torch.tensor(at), error.shape))
    return Judged(
        _share(worst, allowed), _share(float(rows.max()), row_allowed), worst, allowed, rms, where
    )


def judge_lse(
    lse: Tensor, exact: Tensor, live: Tensor, largest: float, tanh: bool, rounding: float = 0.0
) -> float:
    """The worst LSE error of live rows as a share of what is allowed.

    Scores are float32 sums of exact products, so LSE is allowed float32's rounding at the largest
    score, and the error of the approximate tanh where the score goes through it. Where q and k are
    made before their product, twice the error `rounding` that their own type brings, as for O.
    """
    if not bool(live.any()):
        return 0.0
    error = float(_clean((lse.double() - exact).abs(), live).max())
    allowed = LSE_ABSOLUTE + LSE_RELATIVE * largest + (TANH_RELATIVE * largest if tanh else 0.0)
    allowed += 2.0 * rounding
    return _share(error, allowed)


def _clean(error: Tensor, mask: Tensor) -> Tensor:
    """Errors where the mask is, 0 elsewhere; NaN counts as infinite."""
    return torch.nan_to_num(torch.where(mask, error, 0.0), nan=math.inf, posinf=math.inf)


def _finite_max(values: Tensor) -> float:
    """The largest finite value: a row where PyTorch itself overflows excuses nobody."""
    finite = values[torch.isfinite(values)]
    return float(finite.max()) if finite.numel() else 0.0


def _share(error: float, allowed: float) -> float:
    if error == 0.0:
        return 0.0
    return error / allowed if allowed > 0 else math.inf
