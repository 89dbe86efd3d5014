"""Right or wrong at full size: whole heads held against what the spec says of them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from engine.errors import SpecError
from engine.worker.launches.specialisation import Subject
from engine.worker.problems.specrun import unit

UNCOMPARED = "its reference in float64 does not fit here, so nothing says whether it is right"


def sampled(
    subject: Subject, inputs: Mapping[str, Tensor], sizes: Mapping[str, int]
) -> dict[tuple[int, int], tuple[Tensor, Tensor, Tensor]]:
    """The recipe in float64, all rows of some heads: (b, h) -> O, sum |w v|, live rows.

    Whole heads at full length; the spec's own function has judged every element at the sizes of the
    verification deck, and the recipe equals it there. Without a recipe the function itself is run
    on the parts of the inputs that one head needs; empty where they do not fit.
    """
    from engine.worker.problems.one_head import one_head, one_head_by_spec, separable

    picks = {(0, 0), (sizes["B"] - 1, sizes["Hq"] - 1), (sizes["B"] // 2, sizes["Hq"] // 2 + 1)}
    chosen = [(b, h) for b, h in sorted(picks) if h < sizes["Hq"]]
    run = subject.run
    if run.recipe is not None:
        return {(b, h): one_head(run, inputs, sizes, b, h) for b, h in chosen}
    axes = separable(run, subject.d, subject.dv)
    try:
        return {(b, h): one_head_by_spec(run, inputs, sizes, b, h, axes) for b, h in chosen}
    except (SpecError, torch.OutOfMemoryError):
        return {}
    finally:
        if run.device.type == "cuda":
            torch.cuda.empty_cache()


def differs(out: Tensor, want: Mapping[tuple[int, int], tuple[Tensor, Tensor, Tensor]]) -> str:
    """Where `out` [B, Hq, Nq, Dv] leaves what low precision allows; empty when nowhere.

    Without a head in `want` nothing is known, which is no equality.

    Per row: at most 8 roundings of the row's natural size plus 4 of the value, which is what P and
    O in low precision cost, with room for scores rounded by the rival or an approximate tanh.
    """
    if not want:
        return UNCOMPARED
    u = unit(out.dtype)
    for (b, h), (exact, magnitude, live) in want.items():
        got = out[b, h].double()
        allowed = 8 * u * magnitude.amax(-1, keepdim=True) + 4 * u * exact.abs() + 1e-6
        bad = ((got - exact).abs() > allowed) | torch.isnan(got)
        bad &= live[:, None]
        if bool(bad.any()):
            i, d = (int(x) for x in bad.nonzero()[0])
            return (
                f"{int(bad.sum())} elements of b {b} h {h} are off; first i {i} d {d}: "
                f"{float(got[i, d]):.5g}, not {float(exact[i, d]):.5g}"
            )
    return ""
