"""The person's own function as a rival: eager and compiled, on the heads that fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from engine.worker.contests.rivals import RAISED, Absent, Contestant, Mask
from engine.worker.contests.timing import Timing
from engine.worker.launches.specialisation import Subject
from engine.worker.problems.problem_sizes import Case, label
from engine.worker.verification.verify import tell

EAGER, COMPILED = "eager PyTorch", "torch.compile"
EAGER_BYTES, COMPILED_BYTES = 48 << 30, 8 << 30
BYTES_PER_PAIR = 40  # what eager attention holds at its peak, in float32 with a mask


@dataclass(frozen=True)
class Whole:
    """A rival that holds whole score matrices, on sizes of its own."""

    name: str
    call: Contestant
    inputs: dict[str, Tensor]
    sizes: dict[str, int]


def prepare_whole(subject: Subject, case: Case, flex: bool) -> list[Whole | Absent]:
    """The person's own function, run as it is and, where FlexAttention cannot say it, compiled.

    Both hold whole score matrices, so they get as many heads as fit. Eager runs for the first time
    when nothing else uses the GPU; compiling needs a run now, and gets less room.
    """
    out = [_whole(subject, case, EAGER, subject.run.eager(), EAGER_BYTES)]
    if not flex:
        compiled = subject.run.eager(partial(torch.compile, dynamic=False))
        entry = _whole(subject, case, COMPILED, compiled, COMPILED_BYTES)
        if isinstance(entry, Whole):
            tell(event="step", text=f"timing: compiling the spec at {label(entry.sizes)}")
            try:
                entry.call(entry.inputs)
                torch.cuda.synchronize()
            except Exception as error:  # a rival that cannot run here is a row that says so
                entry = Absent(f"does not run here: {brief(error)}", COMPILED, RAISED)
        out.append(entry)
    torch.cuda.empty_cache()
    return out


def _whole(subject: Subject, case: Case, name: str, call: Contestant, room: int) -> Whole | Absent:
    group = case.Hq // case.Hkv
    heads, batch = case.Hq, case.B
    while batch * heads * case.Nq * case.Nk * BYTES_PER_PAIR > room:
        if batch > 1:
            batch //= 2
        elif heads > group:
            heads //= 2
        else:
            return Absent("one head does not fit", name)
    small = Case(batch, heads, max(1, heads // group), case.Nq, case.Nk, case.values, case.seed)
    sizes = subject.run.sizes(small, subject.d, subject.dv)
    if not subject.run.fits(sizes):
        return Absent("the spec excludes the sizes that fit", name)
    inputs = subject.run.make_inputs(small, sizes, subject.dtype)
    return Whole(name, call, inputs, sizes)


def work_of(subject: Subject, mask: Mask) -> dict[str, float]:
    """Kept pairs and their FLOP, 2 (D + Dv) each; empty where they are not counted."""
    if mask.pairs is None:
        return {}
    return {"pairs": mask.pairs, "flops": 2.0 * (subject.d + subject.dv) * mask.pairs}


def rated(work: Mapping[str, float], ms: float) -> dict[str, float]:
    """TFLOP/s of counted work; empty where it is not counted."""
    return {"tflops": work["flops"] / ms * 1e-9} if "flops" in work else {}


def whole_row(
    whole: Whole, timing: Timing, sizes: Mapping[str, int], kind: str, base: float,
    work: Mapping[str, float],
) -> dict[str, Any]:  # fmt: skip
    """The row of a rival that was timed on some of the heads: its time is scaled, and says so.

    Attention of one head does not wait for another's, and those that fit fill the card: all of them
    take as many times as long as there are more of them.
    """
    timed, all_ = (s["B"] * s["Hq"] for s in (whole.sizes, sizes))
    factor = all_ / timed
    ms = timing.median * factor
    row: dict[str, Any] = {
        "case": label(sizes),
        "name": whole.name,
        "ms": ms,
        "iqr_ms": timing.iqr * factor,
        "samples": timing.samples,
        "ours_is": ms / base,
        "sizes": dict(sizes),
        "mask": kind,
        **work,
        **rated(work, ms),
    }
    if timed != all_:
        row["note"] = (
            f"{timing.median:.3f} ms on {label(whole.sizes)}, which fits; scaled to all heads"
        )
    return row


def brief(error: Exception) -> str:
    """Kind and first line of an error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:200] if lines else ''}"
