"""The timing child: ours beside what else computes the same function, in one process.

    python3 run.py --child bench JOB LIBRARY KEY PLAN

Prepares (compiles the rivals, checks every contestant's output), says "ready", waits for a line on
standard input, then times, and checks the outputs of the timed calls again.
"""

from __future__ import annotations

import json
import math
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.worker.contests.full_size import UNCOMPARED, differs, sampled
from engine.worker.contests.kept_pairs import mask_by_spec
from engine.worker.contests.registry import FLEX, RIVALS, take_part
from engine.worker.contests.rivals import (
    RAISED,
    WRONG,
    Absent,
    Contestant,
    Mask,
    Problem,
    Taking,
    Way,
    bare_rivals,
    mask_of,
)
from engine.worker.contests.source_beside import SOURCE, Source, source_of
from engine.worker.contests.timing import (
    Ceilings,
    ClockWatch,
    clocks,
    interleaved,
    measure_ceilings,
)
from engine.worker.contests.whole_function import (
    Whole,
    brief,
    prepare_whole,
    rated,
    whole_row,
    work_of,
)
from engine.worker.launches.guard_bands import bits
from engine.worker.launches.guarded_call import Call
from engine.worker.launches.specialisation import Subject
from engine.worker.orchestration import smi
from engine.worker.orchestration.device import peak_here
from engine.worker.orchestration.job_options import GROUPS
from engine.worker.orchestration.manifest import read_job
from engine.worker.problems.problem_sizes import Case, cases_of, label
from engine.worker.verification.verify import subject_of, tell

SETS = 3
TRIES = 7  # timed calls of each way of a rival, to find its best
OURS, HELD = "CuBridge", "CuBridge, lists held"
ROOF = 0.97  # of the time of the measured copy: faster than that is not believed


@dataclass
class Entry:
    """One length, ready to be timed. `sets` are the spec's inputs, one per input set."""

    case: Case
    sizes: dict[str, int]
    mask: Mask
    sets: list[dict[str, Tensor]]
    rivals: dict[str, Taking | Absent]
    whole: list[Whole | Absent]
    source: list[Call] | Absent | None = None
    source_note: str = ""


def main(arguments: list[str]) -> int:
    folder, library, key, plan_text = arguments
    job = read_job(Path(folder))
    plan = json.loads(plan_text)
    try:
        subject = subject_of(job, Path(library), key, False)
        cases = cases_of(plan, subject.d)
        source = source_of(job, subject, plan.get("source"))
        entries = [e for c in cases if (e := prepare(subject, c, plan, source)) is not None]
        tell(event="ready")
        if sys.stdin.readline().strip() != "go":
            return 1
        begin = time.monotonic()
        ceilings = measure_ceilings(subject.dtype)
        # Kernels pass the measured matmul at times, but not what the card's clock allows.
        most = Ceilings(peak_here() or math.inf, ceilings.copy_gbs / ROOF)
        for entry in entries:
            if time.monotonic() - begin > float(plan["deadline"]):
                tell(
                    event="error", text=f"{label(entry.sizes)}: not timed, the time for it is over"
                )
                continue
            time_entry(subject, entry, int(plan["samples"]), ceilings, most)
            tell(event="timed", case=label(entry.sizes))
    except Exception as error:  # one kernel's timing must not take the others'
        tell(event="error", text=f"timing: {brief(error)}")
        traceback.print_exc()
        return 1
    tell(event="done")
    return 0


def prepare(
    subject: Subject, case: Case, plan: Mapping[str, Any], source: Source | Absent | None = None
) -> Entry | None:
    """Inputs and contestants of one shape; each contestant has run once and was right.

    None where the spec excludes the shape, or an earlier run has timed it.
    """
    case = subject.terms.rounded(case)
    sizes = subject.run.sizes(case, subject.d, subject.dv)
    if not subject.fits(case):
        tell(event="error", text=f"{case}: the spec or the launcher excludes these sizes")
        return None
    if label(sizes) in plan.get("done", ()):
        tell(event="step", text=f"timing: {label(sizes)} is there from an earlier run")
        return None
    tell(event="step", text=f"timing: preparing {case}")
    first = subject.run.make_inputs(case, sizes, subject.dtype)
    sets = [first, *(_fresh(subject, first, case.seed + n) for n in range(1, SETS))]
    mask = mask_at(subject, first, sizes)
    problem = Problem(subject.run, first, sizes, mask)
    wanted = plan.get("rivals", GROUPS)
    want = sampled(subject, first, sizes)
    rivals: dict[str, Taking | Absent] = {}
    for rival in RIVALS:
        if rival.group in wanted:
            tell(event="step", text=f"timing: first runs of {rival.name} at {label(sizes)}")
            made = _guard(lambda rival=rival: take_part(rival, problem))  # type: ignore[misc]
            rivals[rival.name] = first_runs(made, first, want)
    if "sdpa" in wanted and subject.run.recipe is None:
        for name, bare in bare_rivals(subject.run, mask, subject.d).items():
            rivals[name] = first_runs(Taking("", [Way(name, bare)]), first, None)
    flex = not isinstance(rivals.get(FLEX), Absent)
    whole = prepare_whole(subject, case, flex) if "eager" in wanted else []
    if not isinstance(source, Source):
        return Entry(case, sizes, mask, sets, rivals, whole, source)
    tell(event="step", text=f"timing: first run of the source at {label(sizes)}")
    return Entry(
        case, sizes, mask, sets, rivals, whole, source.calls(sets, case, sizes), source.note
    )


def mask_at(subject: Subject, inputs: Mapping[str, Tensor], sizes: Mapping[str, int]) -> Mask:
    """What is kept at these sizes: by the recipe, else by the spec's own function."""
    if subject.run.recipe is not None:
        return mask_of(subject.run, inputs, sizes)
    tell(event="step", text=f"timing: counting the pairs that the spec keeps at {label(sizes)}")
    return mask_by_spec(subject, inputs, sizes)


def first_runs(
    taking: Taking | Absent, inputs: Mapping[str, Tensor], want: Mapping[Any, Any] | None
) -> Taking | Absent:
    """The rival with the ways that ran and were right, or why none did; None for `want`: it is not
    meant to compute the spec."""
    if isinstance(taking, Absent):
        return taking
    if want is not None and not want:
        return Absent(UNCOMPARED)
    right: list[Way] = []
    kind = RAISED
    for way in taking.ways:
        tell(event="step", text=f"timing: first run of {way.label}")
        try:
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                out = way.call(inputs)
                torch.cuda.synchronize()
            wrong = "" if want is None else differs(out, want)
            del out
        except Exception as error:  # a rival that cannot run here is a row that says so
            taking.out.append(f"{way.label}: {brief(error)}{_beside(said)}")
            continue
        finally:
            torch.cuda.empty_cache()
        if wrong:
            kind = WRONG
            taking.out.append(f"{way.label}: computes something else: {wrong}")
        else:
            right.append(way)
    if not right:
        return Absent("; ".join(taking.out), kind=kind)
    taking.ways = right
    return taking


def _beside(said: list[warnings.WarningMessage]) -> str:
    """What was warned of before an error: SDPA gives its reasons there."""
    words = [str(w.message).splitlines()[0].split(" (Triggered internally")[0] for w in said]
    kept = [w for w in dict.fromkeys(words) if "attention" in w.lower() or "attn" in w.lower()]
    return f" ({' '.join(kept)[:400]})" if kept else ""


def best_way(taking: Taking, sets: list[dict[str, Tensor]]) -> tuple[Contestant, dict[str, Any]]:
    """The fastest way of a few calls each, and what a row says of the choice."""
    notes: dict[str, Any] = {"version": taking.version} if taking.version else {}
    if taking.out:
        notes["not_taken"] = taking.out
    if len(taking.ways) == 1:
        return taking.ways[0].call, notes | {"way": taking.ways[0].label}
    calls = {w.label: [partial(w.call, inputs) for inputs in sets] for w in taking.ways}
    times = interleaved(calls, TRIES, _l2())
    best = min(taking.ways, key=lambda way: times[way.label].median)
    tried = {name: timing.median for name, timing in times.items()}
    return best.call, notes | {"way": best.label, "tried_ms": tried}


def time_entry(
    subject: Subject, entry: Entry, samples: int, ceilings: Ceilings, most: Ceilings
) -> None:
    """Time one length and tell a row per contestant. No time is believed that takes more than
    `most`."""
    sizes, where = entry.sizes, label(entry.sizes)
    tell(event="step", text=f"timing: {where}")
    calls = [subject.made(inputs, sizes) for inputs in entry.sets]
    contestants: dict[str, list[Callable[[], object]]] = {
        OURS: [partial(c.launch, c.fields) for c in calls]
    }
    if calls[0].workspace is not None:
        # A caller that holds a plan: the lists are those that the rows above have made.
        contestants[HELD] = [partial(c.launch, c.held) for c in calls]
    chosen: dict[str, dict[str, Any]] = {}
    if isinstance(entry.source, Absent):
        tell(event="row", row={"case": where, "name": SOURCE, **entry.source.row()})
    elif entry.source is not None:
        contestants[SOURCE] = [partial(c.launch, c.fields) for c in entry.source]
        chosen[SOURCE] = {"note": entry.source_note}
    for name, rival in entry.rivals.items():
        if isinstance(rival, Absent):
            tell(event="row", row={"case": where, "name": name, **rival.row()})
        else:
            call, chosen[name] = best_way(rival, entry.sets)
            contestants[name] = [partial(call, inputs) for inputs in entry.sets]
    card = smi.named(torch.cuda.get_device_properties(0))
    before = clocks(card)
    with ClockWatch(card) as watch:
        times = interleaved(contestants, samples, _l2())
    after = clocks(card)
    # Where the kept pairs are not counted, bytes alone are the floor.
    work = work_of(subject, entry.mask)
    floor = floor_ms(subject, sizes, work.get("flops", 0.0), ceilings)
    base = times[OURS].median
    for name, timing in times.items():
        row: dict[str, Any] = {
            "case": where, "name": name, "ms": timing.median, "iqr_ms": timing.iqr,
            "samples": timing.samples, "ours_is": timing.median / base, "mask": entry.mask.kind,
            **work, **rated(work, timing.median), "sizes": sizes,
            "dtype": str(subject.dtype).removeprefix("torch."),
            "clocks": {"before": before, "after": after, **watch.seen()},
            **chosen.get(name, {}),
        }  # fmt: skip
        if name.startswith("bare "):
            row["note"] = "the mask alone: not what the spec computes"
        if name == OURS:
            row |= {
                "floor_ms": floor, "of_floor": floor / timing.median,
                "matmul_tflops": ceilings.matmul_tflops, "copy_gbs": ceilings.copy_gbs,
            }  # fmt: skip
        tell(event="row", row=row)
    least = floor_ms(subject, sizes, work.get("flops", 0.0), most)
    tell(event="check", row=timed_outputs(subject, entry, calls, base, least))
    for whole in entry.whole:
        time_whole(entry, whole, base, work)


def time_whole(entry: Entry, whole: Whole | Absent, base: float, work: Mapping[str, float]) -> None:
    """A row for the person's own function, timed on the heads that fit and scaled to all."""
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
    tell(event="row", row=whole_row(whole, timing, entry.sizes, entry.mask.kind, base, work))


def timed_outputs(
    subject: Subject, entry: Entry, calls: list[Any], median: float, least: float
) -> dict[str, Any]:
    """What the timed calls left in their outputs is right, new inputs give new outputs, and the
    time is one that the card can do."""
    with subject.tallies.timed("timed outputs") as tally:
        fresh = _fresh(subject, entry.sets[0], 99)
        *wants, after = (sampled(subject, i, entry.sizes) for i in (*entry.sets, fresh))
        if not (all(wants) and after):
            tally.note(reason="the spec's function in float64 does not fit at the timed sizes")
            return tally.row()
        for number, (call, want) in enumerate(zip(calls, wants, strict=True)):
            tally.case()
            if wrong := differs(subject.o(call), want):
                tally.fail(f"{label(entry.sizes)} set {number}: {wrong}")
        tally.case()
        was = bits(calls[0].o).clone()
        for name, held in calls[0].inputs.items():
            held.tensor.copy_(fresh[name])
        calls[0].launch(calls[0].fields)
        torch.cuda.synchronize()
        if wrong := differs(subject.o(calls[0]), after):
            tally.fail(f"{label(entry.sizes)} after rewriting the inputs in place: {wrong}")
        if torch.equal(was, bits(calls[0].o)):
            tally.fail(f"{label(entry.sizes)}: new inputs give the old output")
        tally.case()
        if median < least:
            tally.fail(
                f"{label(entry.sizes)}: {median:.3f} ms, and the card takes {least:.3f} ms at least"
            )
    return tally.row()


def floor_ms(subject: Subject, sizes: Mapping[str, int], flops: float, ceilings: Ceilings) -> float:
    """The larger of arithmetic over the matmul rate and bytes over the copy, in milliseconds."""
    element = torch.empty((), dtype=subject.dtype).element_size()
    b, hq, hkv = sizes["B"], sizes["Hq"], sizes["Hkv"]
    moved = element * (
        b * hq * sizes["Nq"] * (sizes["D"] + sizes["Dv"])
        + b * hkv * sizes["Nk"] * (sizes["D"] + sizes["Dv"])
    )
    return max(flops / ceilings.matmul_tflops * 1e-9, moved / ceilings.copy_gbs * 1e-6)


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


def _guard(make: Callable[[], Taking | Absent]) -> Taking | Absent:
    try:
        return make()
    except Exception as error:  # a rival that cannot be made is a row that says so
        return Absent(f"its call cannot be made: {brief(error)}", kind=RAISED)


def _l2() -> int:
    return int(getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 0)) or 64 << 20
