"""The checks of one specialisation: run the kernel, compare with the spec, tally what is found.

The kernel always runs before the oracle, so that no freed reference lies about to be found.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from engine.errors import SpecError
from engine.spec.decks.extreme_biases import PATTERNS
from engine.spec.reference.oracle import output_as_bhnd
from engine.transfer.binding import SLOTS
from engine.transfer.fill import permuted
from engine.worker.launches.guard_bands import LAYOUTS
from engine.worker.launches.guarded_call import Call, synchronise, words_that_lie
from engine.worker.launches.result_rows import Tally
from engine.worker.launches.specialisation import Subject
from engine.worker.orchestration.checklist import (
    FEWEST,
    NO_LSE,
    NO_LSE_OUTPUT,
    NO_RECIPE,
    REPEATS,
    UNREACHED,
)
from engine.worker.problems import problem_sizes as deck
from engine.worker.problems.specrun import UNUSUAL, Outcome
from engine.worker.verification.probes import (
    UNRUN,
    check_independence,
    check_keep_sets,
    check_under_mask,
)
from engine.worker.verification.tolerances import FACTOR, FACTOR_TANH, judge_lse, judge_output

FAR = 2**31 + 4096  # elements between batches, a multiple of 16 bytes
RECIPE_TOLERANCE = 1e-8
COMPARED = "cases with keys"
LAYOUT_REFUSED = 12  # cudaErrorInvalidPitchValue, as the headers and packages have it
CONTIGUOUS_ALONE = "the launcher takes contiguous tensors alone"


def check_numbers(subject: Subject) -> None:
    """accuracy, lse, recipe, written, guard bands, inputs, empty rows: the whole deck."""
    tally = subject.tallies["accuracy"]
    if far := deck.beyond(subject.expressions):
        tally.notes[UNREACHED] = list(far)
    cases = (*subject.accuracy_cases, *subject.list_cases, *subject.extreme_cases)
    for n, case in enumerate(cases):
        if not subject.fits(case):
            tally.count("sizes that the spec excludes", 1)
            continue
        subject.say(f"numbers: {case}")
        call, inputs = subject.call(case)
        lying = words_that_lie(SLOTS if case.slots is None else case.slots)
        call.lies = lying[n % len(lying)]
        run_and_judge(subject, call, inputs, case, "accuracy")
    check_unread(subject)


def comparable(subject: Subject, inputs: dict[str, Tensor]) -> bool:
    """Whether there is anything to compare with at unusual logits."""
    try:
        return subject.run.finite_as_ever(inputs)
    except SpecError:
        return subject.run.recipe is None  # what does not run is said where it is judged


def check_unread(subject: Subject) -> None:
    """Say what cannot be judged without a recipe; too few cases that could be are no pass."""
    if subject.run.recipe is not None:
        return
    t = subject.tallies
    t["recipe"].note(reason=NO_RECIPE)
    has_lse = any(i.output and i.source == "LSE" for i in subject.binding.tensors)
    t["lse"].note(reason=NO_LSE if has_lse else NO_LSE_OUTPUT)
    compared = t["accuracy"].notes.get(COMPARED, 0)
    if compared < FEWEST:
        t["accuracy"].fail(f"only {compared} cases with keys could be compared with the spec")


def run_and_judge(
    subject: Subject, call: Call, inputs: dict[str, Tensor], case: object, check: str
) -> None:
    """Launch once and judge all that one launch shows."""
    t = subject.tallies
    with t.timed(check) as tally:
        tally.case()
        status = call.run()
        if status != 0:
            tally.fail(f"{case}: the launch returned {status}")
            return
        unusual = isinstance(case, deck.Case) and case.values in UNUSUAL
        if unusual and not comparable(subject, inputs):
            tally.count("cases whose logits the spec gives no finite numbers for", 1)
            return
        judge(subject, call, inputs, case, check)


def judge(
    subject: Subject, call: Call, inputs: dict[str, Tensor], case: object, check: str
) -> None:
    """Judge the outputs of a launch that has happened."""
    t = subject.tallies
    for name in ("written", "guard bands", "inputs"):
        t[name].case()
    for name, count in call.touched_outside().items():
        t["guard bands"].fail(f"{case}: {count} bytes outside {name} changed")
    for name in call.changed_inputs():
        t["inputs"].fail(f"{case}: {name} changed")
    o = subject.o(call)
    for name, output in call.outputs.items():
        if missing := int(torch.isnan(output.tensor).sum()):
            t["written"].fail(f"{case}: {missing} elements of {name} are NaN")
    if o.numel() == 0:
        return
    try:
        want = subject.run.outcome(inputs)
    except SpecError:
        if subject.run.recipe is not None:
            raise
        t[check].withdraw(UNRUN)
        return
    live = ~want.empty
    if subject.run.recipe is None:
        t[check].count(COMPARED, int(bool(live.any())))
    judge_empty(subject, call, o, want, case)
    if bool(live.any()):
        judge_live(subject, o, inputs, want, live, case, check)
    if call.lse is not None and want.lse is not None:
        t["lse"].case()
        rows = ~torch.isneginf(want.lse)
        largest = float(want.lse[rows].abs().max()) if bool(rows.any()) else 0.0
        rounding = subject.run.rounding_of_lse(inputs, want.lse, rows)
        share = judge_lse(call.lse, want.lse, rows, largest, subject.approximate, rounding)
        t["lse"].measure(share, case)
        if not share <= 1.0:
            t["lse"].fail(f"{case}: {share:.3g} times the allowed error")


def judge_live(
    subject: Subject,
    o: Tensor,
    inputs: dict[str, Tensor],
    want: Outcome,
    live: Tensor,
    case: object,
    check: str,
) -> None:
    """Rows that keep something, against the spec's own function."""
    t = subject.tallies
    exact = subject.run.exact(inputs) if want.exact is None else want.exact
    # At scores of 1e9 the order of float64's own sums shows: there the function alone is asked.
    extreme = isinstance(case, deck.Case) and case.values in PATTERNS
    if want.read is not None and not extreme:
        t["recipe"].case()
        scale = exact.abs().amax(-1, keepdim=True).clamp(min=1e-300)
        apart = torch.where(live[..., None], (want.read.o - exact).abs() / scale, 0.0)
        apart_by = float(torch.nan_to_num(apart, nan=float("inf")).max())
        t["recipe"].measure(apart_by / RECIPE_TOLERANCE, case)
        if not apart_by <= RECIPE_TOLERANCE:
            t["recipe"].fail(f"{case}: the recipe and the spec differ by {apart_by:.3g} of the row")
    low = subject.run.low(inputs)
    magnitude = subject.run.magnitude(inputs, exact)
    factor = FACTOR_TANH if subject.approximate else FACTOR
    found = judge_output(o, exact, low, magnitude, live, factor)
    t[check].measure(max(found.share, found.row_share), case)
    if not found.ok:
        b, h, i, d = found.where
        none = ~live[b, h, :, None]
        drawn = (o[b, h].masked_fill(none, 0.0), exact[b, h].masked_fill(none, 0.0))
        t[check].picture(case, (b, h, i), "O", *drawn)
        t[check].fail(
            f"{case}: error {found.error:.3g}, {found.allowed:.3g} allowed "
            f"({found.row_share:.3g} of the rule per row); worst at b {b} h {h} i {i} d {d}: "
            f"{float(o[found.where]):.5g}, the spec gives {float(exact[found.where]):.5g}"
        )


def judge_empty(subject: Subject, call: Call, o: Tensor, want: Outcome, case: object) -> None:
    """Rows that keep nothing: O = 0 and, where LSE is compared, LSE = -inf, exactly (of someone's
    own launcher either infinity). A sink is judged with the other rows' LSE."""
    empty = want.empty
    tally = subject.tallies["empty rows"]
    tally.case()
    count = int(empty.sum())
    tally.count("rows", count)
    if not count:
        return
    wrong = int((o[empty] != 0).any(-1).sum())
    if wrong:
        tally.fail(f"{case}: {wrong} of {count} rows without a key have O other than 0")
    sink = subject.run.recipe is not None and subject.run.recipe.sink is not None
    if call.lse is not None and want.lse is not None and not sink:
        infinite = torch.isinf if subject.terms.theirs else torch.isneginf
        wrong = int((~infinite(call.lse[empty])).sum())
        if wrong:
            tally.fail(f"{case}: {wrong} of {count} rows without a key have LSE other than -inf")


def check_layouts(subject: Subject) -> None:
    """Every input and output in every memory layout, alone and all together."""
    if subject.terms.theirs:
        subject.tallies.open("layouts").note(reason=CONTIGUOUS_ALONE)
        return
    sources = [b.source for b in subject.binding.tensors]
    case = subject.adapted(deck.LAYOUT_CASE)
    if case is None:
        return
    plans = [dict.fromkeys(sources, layout) for layout in LAYOUTS[1:]]
    if not subject.short:
        plans += [{s: LAYOUTS[1 + n % 3]} for n, s in enumerate(sources)]
        plans += [{s: LAYOUTS[4]} for s in sources]
    for plan in plans:
        one = next(iter(plan))
        name = plan[one].name if len(plan) > 1 else f"{one} as {plan[one].name}"
        subject.say(f"layouts: {name}")
        with subject.tallies.timed("layouts") as tally:
            tally.case()
            call, inputs = subject.call(case, plan)
            status = call.run()
            if status != 0:
                odd = not all(layout.aligned for layout in plan.values())
                if not odd or status != LAYOUT_REFUSED:
                    tally.fail(f"{name}: the launch returned {status}")
                elif not call.untouched():
                    tally.fail(f"{name}: refused with {status}, yet an output was written")
                else:
                    tally.notes.setdefault("refused", []).append(f"{name}: status {status}")
                continue
            judge(subject, call, inputs, name, "layouts")


def check_far(subject: Subject) -> None:
    """Batches that lie more than 2^31 elements apart: an offset in 32 bits lands elsewhere."""
    if subject.short:
        return
    tally = subject.tallies.open("far offsets")
    case = subject.adapted(deck.FAR_CASE)
    if case is None:
        return
    if subject.terms.theirs:
        tally.note(reason=CONTIGUOUS_ALONE)
        return
    device = subject.run.device
    if device.type == "cuda":
        free = torch.cuda.mem_get_info(device)[0]
        if free < 4 * FAR:
            tally.note(reason=f"needs {4 * FAR >> 30} GiB of GPU memory, {free >> 30} are free")
            return
    subject.say(f"far offsets: {case}")
    with subject.tallies.timed("far offsets") as tally:
        tally.case()
        call, inputs = subject.call(case)
        held = far_apart(subject, call, inputs)
        if status := subject.launch(call.fields):
            tally.fail(f"{case}: the launch returned {status}")
            return
        synchronise(device)
        try:
            want = subject.run.outcome(inputs)
        except SpecError:
            if subject.run.recipe is not None:
                raise
            tally.withdraw(UNRUN)
            return
        o = output_as_bhnd(subject.run.signature, held["O"])
        judge_live(subject, o, inputs, want, ~want.empty, case, "far offsets")


def far_apart(subject: Subject, call: Call, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Put every tensor of the element type that has batches into one buffer, batches FAR apart.

    Changes the call's fields and gives the tensors by the spec's name; outputs hold NaN.
    """
    items = [i for i in subject.binding.tensors if i.dtype == "T" and "B" in i.source_dims]
    shapes = {i.source: (call.outputs if i.output else call.inputs)[i.source].tensor for i in items}
    room = sum(-(-t.numel() // 64) * 64 for t in shapes.values())
    buffer = torch.empty(FAR + room, dtype=subject.dtype, device=subject.run.device)
    held: dict[str, Tensor] = {}
    at = 0
    for item in items:
        like = shapes[item.source]
        batch = item.source_dims.index("B")
        order = [batch, *(d for d in range(like.dim()) if d != batch)]
        inner = [like.shape[d] for d in order[1:]]
        steps = [FAR, *(math.prod(inner[n + 1 :]) for n in range(len(inner)))]
        strides = [steps[order.index(d)] for d in range(like.dim())]
        view = buffer.as_strided(like.shape, strides, at)
        at += -(-math.prod(inner) // 64) * 64
        if item.output:
            view.fill_(torch.nan)
        else:
            view.copy_(inputs[item.source])
        held[item.source] = view
        call.fields[item.field] = permuted(view, item)
    return held


def check_rewritten(subject: Subject) -> None:
    """New values written into the same storage must give new results."""
    case = subject.adapted(deck.LAYOUT_CASE)
    if case is None:
        return
    subject.say(f"rewritten inputs: {case}")
    with subject.tallies.timed("rewritten inputs") as tally:
        call, _ = subject.call(case)
        call.run()
        sizes = subject.run.sizes(case, subject.d, subject.dv)
        for seed in (1, 2):
            tally.case()
            fresh = replace(case, values=deck.PEAKED, seed=8000 + seed, turn=seed)
            inputs = subject.run.make_inputs(fresh, sizes, subject.dtype)
            for name, held in call.inputs.items():
                held.tensor.copy_(inputs[name])
            if status := call.run():
                tally.fail(f"{fresh}: the launch returned {status}")
                continue
            judge(subject, call, inputs, f"rewritten {fresh}", "rewritten inputs")


def check_repeats(subject: Subject) -> None:
    """The same launch again and again: the same bits."""
    case = subject.repeat_case
    if case is None:
        return
    subject.say(f"repeats: {case}")
    with subject.tallies.timed("repeats") as tally:
        call, _ = subject.call(case)
        call.run()
        first = call.bits()
        for number in range(REPEATS - 1):
            call.run()
            tally.case()
            different = sum(int((a != b).sum()) for a, b in zip(first, call.bits(), strict=True))
            if different:
                tally.fail(f"{case}: launch {number + 2} differs in {different} elements")


def check_held(subject: Subject) -> None:
    """Lists that the caller holds are as good as new ones, and a launch leaves them alone."""
    if subject.binding.workspace is None:
        return
    subject.tallies.open("held lists")
    case = subject.repeat_case
    if case is None:
        return
    subject.say(f"held lists: {case}")
    with subject.tallies.timed("held lists") as tally:
        tally.case()
        call, _ = subject.call(case)
        status = call.run()
        assert call.workspace is not None
        first, lists = call.bits(), call.workspace.buffer.clone()
        status = status or call.run(held=True)
        if status:
            tally.fail(f"{case}: the launch returned {status}")
            return
        different = sum(int((a != b).sum()) for a, b in zip(first, call.bits(), strict=True))
        if different:
            tally.fail(f"{case}: with the lists held {different} elements differ")
        if not torch.equal(lists, call.workspace.buffer):
            tally.fail(f"{case}: a launch that was told to keep the lists changed them")


def check_stale(subject: Subject) -> None:
    """Lists are made anew, whatever lay in the workspace: words that lists would believe, and what
    a launch on other inputs left."""
    if subject.binding.workspace is None:
        return
    subject.tallies.open("stale lists")
    fitted = (subject.repeat_case, *(c for c in subject.list_cases if c.slots == 1))
    for case in filter(None, fitted):
        if not subject.fits(case):
            continue
        subject.say(f"stale lists: {case}")
        with subject.tallies.timed("stale lists") as tally:
            _stale(subject, case, tally)


def _stale(subject: Subject, case: deck.Case, tally: Tally) -> None:
    call, inputs = subject.call(case)
    status = call.run()
    first = call.bits()

    def same(lay: str) -> None:
        tally.case()
        if status:
            tally.fail(f"{case}: the launch returned {status}")
            return
        different = sum(int((a != b).sum()) for a, b in zip(first, call.bits(), strict=True))
        if different:
            tally.fail(f"{case}: {different} elements differ where the workspace held {lay}")

    for word in words_that_lie(SLOTS if case.slots is None else case.slots):
        call.lies = word
        status = status or call.run()
        same(f"{word} beforehand")
    sizes = subject.run.sizes(case, subject.d, subject.dv)
    other = replace(case, values=deck.PEAKED, seed=case.seed + 50, turn=case.turn + 1)
    others = subject.run.make_inputs(other, sizes, subject.dtype)
    for values, left in ((others, False), (inputs, True)):
        for name, held in call.inputs.items():
            held.tensor.copy_(values[name])
        status = status or call.run(left=left)
    same("the lists of other inputs")


CHECKS_IN_ORDER: tuple[Callable[[Subject], None], ...] = (
    check_numbers,
    check_layouts,
    check_far,
    check_keep_sets,
    check_independence,
    check_under_mask,
    check_rewritten,
    check_repeats,
    check_held,
    check_stale,
)
