"""The timing child: ours beside what else computes the same function, in one process.

    python3 run.py --child bench JOB LIBRARY KEY PLAN

Prepares (compiles the rivals, checks every contestant's output), says "ready", waits for a line on
standard input, then times, and checks the outputs of the timed calls again.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.errors import SpecError
from engine.gpu.worker.cases import Case
from engine.gpu.worker.fa4 import NAME as FA4
from engine.gpu.worker.fa4 import fa4_rival
from engine.gpu.worker.guarded import bits
from engine.gpu.worker.manifest import Job, read_job
from engine.gpu.worker.rivals import Absent, Contestant, Mask, flex_rival, mask_of, sdpa_rivals
from engine.gpu.worker.shapes import cases_of, label
from engine.gpu.worker.specrun import unit
from engine.gpu.worker.subject import Subject
from engine.gpu.worker.timing import Ceilings, ClockWatch, clocks, interleaved, measure_ceilings
from engine.gpu.worker.verify import subject_of, tell

SETS = 3
OURS, HELD = "CuBridge", "CuBridge, lists held"
EAGER, COMPILED = "eager PyTorch", "torch.compile"
EAGER_BYTES, COMPILED_BYTES = 48 << 30, 8 << 30
BYTES_PER_PAIR = 40  # what eager attention holds at its peak, in float32 with a mask
ROOF = 0.97  # of the measured matmul rate: faster than that is not believed


@dataclass(frozen=True)
class Whole:
    """A rival that holds whole score matrices, on sizes of its own."""

    name: str
    call: Contestant
    inputs: dict[str, Tensor]
    sizes: dict[str, int]
    mask: Mask


@dataclass
class Entry:
    """One length, ready to be timed. `sets` are the spec's inputs, one per input set."""

    case: Case
    sizes: dict[str, int]
    mask: Mask
    sets: list[dict[str, Tensor]]
    contestants: dict[str, Contestant | Absent]
    whole: list[Whole | Absent]


def main(arguments: list[str]) -> int:
    folder, library, key, plan_text = arguments
    job = read_job(Path(folder))
    plan = json.loads(plan_text)
    try:
        subject = subject_of(job, Path(library), key, False)
        cases = cases_of(plan, subject.d)
        entries = [e for c in cases if (e := prepare(subject, job, c, plan)) is not None]
        tell(event="ready")
        if sys.stdin.readline().strip() != "go":
            return 1
        begin = time.monotonic()
        ceilings = measure_ceilings(subject.dtype)
        for entry in entries:
            if time.monotonic() - begin > float(plan["deadline"]):
                tell(
                    event="error", text=f"{label(entry.sizes)}: not timed, the time for it is over"
                )
                continue
            time_entry(subject, entry, int(plan["samples"]), ceilings)
            tell(event="timed", case=label(entry.sizes))
    except Exception as error:  # one kernel's timing must not take the others'
        tell(event="error", text=f"timing: {_short(error)}")
        traceback.print_exc()
        return 1
    tell(event="done")
    return 0


def prepare(subject: Subject, job: Job, case: Case, plan: Mapping[str, Any]) -> Entry | None:
    """Inputs and contestants of one shape; each contestant has run once and was right.

    None where the spec excludes the shape, or an earlier run has timed it.
    """
    sizes = subject.run.sizes(case, subject.d, subject.dv)
    if not subject.run.fits(sizes):
        tell(event="error", text=f"{case}: the spec excludes these sizes")
        return None
    if label(sizes) in plan.get("done", ()):
        tell(event="step", text=f"timing: {label(sizes)} is there from an earlier run")
        return None
    tell(event="step", text=f"timing: preparing {case}")
    first = subject.run.make_inputs(case, sizes, subject.dtype)
    sets = [first, *(_fresh(subject, first, case.seed + n) for n in range(1, SETS))]
    mask = mask_of(subject.run, first, sizes)
    rivals: dict[str, Contestant | Absent] = {}
    wanted = plan.get("rivals", ["sdpa", "fa4", "flex", "eager"])
    if "sdpa" in wanted:
        rivals |= sdpa_rivals(subject.run, first, sizes, mask)
    if "fa4" in wanted:
        rivals[FA4] = _guard(lambda: fa4_rival(subject.run, first, sizes, mask))
    if "flex" in wanted:
        source = (job.folder / job.flex).read_text(encoding="utf-8") if job.flex else None
        rivals["FlexAttention"] = _guard(
            lambda: flex_rival(subject.run, source, job.flex_reason, first, sizes)
        )
    want = sampled(subject, first, sizes)
    for name, rival in list(rivals.items()):
        if isinstance(rival, Absent):
            continue
        tell(event="step", text=f"timing: first run of {name} at {label(sizes)}")
        try:
            out = rival(first)
            torch.cuda.synchronize()
            wrong = differs(out, want)
        except Exception as error:  # a rival that cannot run here is a row that says so
            rivals[name] = Absent(f"does not run here: {_short(error)}")
            continue
        if wrong:
            rivals[name] = Absent(f"computes something else: {wrong}")
        del out
        torch.cuda.empty_cache()
    flex = not isinstance(rivals.get("FlexAttention"), Absent)
    whole = prepare_whole(subject, case, flex) if "eager" in wanted else []
    return Entry(case, sizes, mask, sets, rivals, whole)


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
                entry = Absent(f"does not run here: {_short(error)}", COMPILED)
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
    return Whole(name, call, inputs, sizes, mask_of(subject.run, inputs, sizes))


def time_entry(subject: Subject, entry: Entry, samples: int, ceilings: Ceilings) -> None:
    """Time one length and tell a row per contestant."""
    sizes, where = entry.sizes, label(entry.sizes)
    tell(event="step", text=f"timing: {where}")
    calls = [subject.made(inputs, sizes) for inputs in entry.sets]
    contestants: dict[str, list[Callable[[], object]]] = {
        OURS: [partial(c.launch, c.fields) for c in calls]
    }
    if calls[0].workspace is not None:
        # A caller that holds a plan: the lists are those that the rows above have made.
        contestants[HELD] = [partial(c.launch, c.held) for c in calls]
    for name, rival in entry.contestants.items():
        if isinstance(rival, Absent):
            tell(event="row", row={"case": where, "name": name, "reason": rival.reason})
        else:
            contestants[name] = [partial(rival, inputs) for inputs in entry.sets]
    before = clocks()
    with ClockWatch() as watch:
        times = interleaved(contestants, samples, _l2())
    after = clocks()
    flops = 2.0 * (subject.d + subject.dv) * entry.mask.pairs
    # How little arithmetic a mask leaves is not known without a recipe: then bytes are the floor.
    floor = floor_ms(subject, sizes, flops if entry.mask.known else 0.0, ceilings)
    base = times[OURS].median
    for name, timing in times.items():
        row: dict[str, Any] = {
            "case": where, "name": name, "ms": timing.median, "iqr_ms": timing.iqr,
            "samples": timing.samples, "tflops": flops / timing.median * 1e-9,
            "ours_is": timing.median / base, "pairs": entry.mask.pairs, "mask": entry.mask.kind,
            "flops": flops, "sizes": sizes, "dtype": str(subject.dtype).removeprefix("torch."),
            "clocks": {"before": before, "after": after, **watch.seen()},
        }  # fmt: skip
        if name == OURS:
            row |= {
                "floor_ms": floor, "of_floor": floor / timing.median,
                "matmul_tflops": ceilings.matmul_tflops, "copy_gbs": ceilings.copy_gbs,
            }  # fmt: skip
        tell(event="row", row=row)
    tell(event="check", row=timed_outputs(subject, entry, calls, base, floor))
    for whole in entry.whole:
        time_whole(subject, entry, whole, base, flops)


def time_whole(
    subject: Subject, entry: Entry, whole: Whole | Absent, base: float, flops: float
) -> None:
    """A row for the person's own function on the heads that fit; compared by TFLOP/s."""
    where = label(entry.sizes)
    if isinstance(whole, Absent):
        tell(event="row", row={"case": where, "name": whole.name, "reason": whole.reason})
        return
    try:
        call = partial(whole.call, whole.inputs)
        timing = interleaved({whole.name: [call]}, 10, _l2())[whole.name]
    except torch.OutOfMemoryError:
        tell(event="row", row={"case": where, "name": whole.name, "reason": "out of memory"})
        return
    finally:
        torch.cuda.empty_cache()
    own = 2.0 * (subject.d + subject.dv) * whole.mask.pairs
    rate = own / timing.median * 1e-9
    row: dict[str, Any] = {
        "case": where,
        "name": whole.name,
        "ms": timing.median,
        "iqr_ms": timing.iqr,
        "samples": timing.samples,
        "tflops": rate,
        "ours_is": flops / base * 1e-9 / rate,
        "sizes": whole.sizes,
        "flops": own,
        "pairs": whole.mask.pairs,
        "mask": whole.mask.kind,
    }
    if whole.sizes != entry.sizes:
        row["note"] = f"on {label(whole.sizes)}, which fits; compared by TFLOP/s"
    tell(event="row", row=row)


def timed_outputs(
    subject: Subject, entry: Entry, calls: list[Any], median: float, floor: float
) -> dict[str, Any]:
    """What the timed calls left in their outputs is right, new inputs give new outputs, and the
    time is one that the card can do."""
    with subject.tallies.timed("timed outputs") as tally:
        wants = [sampled(subject, inputs, entry.sizes) for inputs in entry.sets]
        if not all(wants):
            tally.note(reason="the spec's function in float64 does not fit at the timed sizes")
            return tally.row()
        for number, (call, want) in enumerate(zip(calls, wants, strict=True)):
            tally.case()
            if wrong := differs(subject.o(call), want):
                tally.fail(f"{label(entry.sizes)} set {number}: {wrong}")
        tally.case()
        was = bits(calls[0].o).clone()
        fresh = _fresh(subject, entry.sets[0], 99)
        for name, held in calls[0].inputs.items():
            held.tensor.copy_(fresh[name])
        calls[0].launch(calls[0].fields)
        torch.cuda.synchronize()
        if wrong := differs(subject.o(calls[0]), sampled(subject, fresh, entry.sizes)):
            tally.fail(f"{label(entry.sizes)} after rewriting the inputs in place: {wrong}")
        if torch.equal(was, bits(calls[0].o)):
            tally.fail(f"{label(entry.sizes)}: new inputs give the old output")
        tally.case()
        if median < floor * ROOF:
            tally.fail(
                f"{label(entry.sizes)}: {median:.3f} ms is under the card's measured floor of "
                f"{floor:.3f} ms"
            )
    return tally.row()


def floor_ms(subject: Subject, sizes: Mapping[str, int], flops: float, ceilings: Ceilings) -> float:
    """The larger of arithmetic over the measured matmul rate and bytes over the measured copy."""
    element = torch.empty((), dtype=subject.dtype).element_size()
    b, hq, hkv = sizes["B"], sizes["Hq"], sizes["Hkv"]
    moved = element * (
        b * hq * sizes["Nq"] * (sizes["D"] + sizes["Dv"])
        + b * hkv * sizes["Nk"] * (sizes["D"] + sizes["Dv"])
    )
    return max(flops / ceilings.matmul_tflops * 1e-9, moved / ceilings.copy_gbs * 1e-6)


# --- right or wrong at full size -----------------------------------------------------------------


def sampled(
    subject: Subject, inputs: Mapping[str, Tensor], sizes: Mapping[str, int]
) -> dict[tuple[int, int], tuple[Tensor, Tensor, Tensor]]:
    """The recipe in float64, all rows of some heads: (b, h) -> O, sum |w v|, live rows.

    Whole heads at full length; the spec's own function has judged every element at the sizes of the
    verification deck, and the recipe equals it there. Without a recipe the function itself is run
    on the parts of the inputs that one head needs; empty where they do not fit.
    """
    from engine.gpu.worker.alone import one_head_by_spec, separable
    from engine.gpu.worker.heads import one_head

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

    Per row: at most 8 roundings of the row's natural size plus 4 of the value, which is what P and
    O in low precision cost, with room for scores rounded by the rival or an approximate tanh.
    """
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


def _fresh(subject: Subject, like: Mapping[str, Tensor], seed: int) -> dict[str, Tensor]:
    """Other q, k and v; extra inputs are shared by all sets."""
    generator = torch.Generator(subject.run.device).manual_seed(seed)
    out = dict(like)
    for item in subject.run.signature.inputs:
        if item.role != "extra":
            old = like[item.name]
            draw = torch.randn(old.shape, device=old.device, generator=generator)
            out[item.name] = draw.to(old.dtype)
    return out


def _guard(make: Callable[[], Contestant | Absent]) -> Contestant | Absent:
    try:
        return make()
    except Exception as error:  # a rival that cannot be made is a row that says so
        return Absent(f"does not run here: {_short(error)}")


def _short(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:200] if lines else ''}"


def _l2() -> int:
    return int(getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 0)) or 64 << 20
