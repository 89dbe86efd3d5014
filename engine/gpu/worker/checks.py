"""The checks of one specialisation: run the kernel, compare with the spec, tally what is found.

The kernel always runs before the oracle, so that no freed reference lies about to be found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.gpu.worker import cases as deck
from engine.gpu.worker.calls import Call, Launch, make_call
from engine.gpu.worker.cases import Case
from engine.gpu.worker.checklist import REPEATS
from engine.gpu.worker.guarded import LAYOUTS, Layout
from engine.gpu.worker.rows import Tallies
from engine.gpu.worker.rules import FACTOR, FACTOR_TANH, judge_lse, judge_output
from engine.gpu.worker.specrun import SpecRun, one_hot
from engine.spec.oracle import Expected, output_as_bhnd
from engine.transfer.binding import Binding

Say = Callable[[str], None]
# V's hot element, and the weight from which on it must show in O. P is rounded to the inputs'
# format before it is normalised, so float16 loses weights under 2^-25 of the largest; bfloat16 has
# float32's exponents.
HOT = {torch.float16: (2.0**15, 1e-7), torch.bfloat16: (2.0**40, 1e-30)}
MOVED = 1e-3  # a weight from which on a changed V must change O
RECIPE_TOLERANCE = 1e-8


@dataclass
class Subject:
    """One specialisation of a kernel beside its spec."""

    key: str
    run: SpecRun
    binding: Binding
    launch: Launch
    dtype: torch.dtype
    d: int
    dv: int
    short: bool
    tallies: Tallies
    say: Say

    def call(
        self, case: Case, layouts: dict[str, Layout] | None = None
    ) -> tuple[Call, dict[str, Tensor]]:
        """Arguments for a case, and the spec's inputs that they hold."""
        sizes = self.run.sizes(case, self.d, self.dv)
        inputs = self.run.make_inputs(case, sizes, self.dtype)
        return make_call(self.launch, self.binding, inputs, sizes, self.dtype, layouts), inputs

    def again(self, case: Case, inputs: dict[str, Tensor]) -> Call:
        sizes = self.run.sizes(case, self.d, self.dv)
        return make_call(self.launch, self.binding, inputs, sizes, self.dtype)

    def o(self, call: Call) -> Tensor:
        """O as [B, Hq, Nq, Dv]."""
        return output_as_bhnd(self.run.recipe, call.o)

    def fits(self, case: Case) -> bool:
        return self.run.fits(self.run.sizes(case, self.d, self.dv))

    @property
    def expressions(self) -> tuple[object, ...]:
        recipe = self.run.recipe
        found = (recipe.keep, recipe.score, recipe.weight, recipe.output_factor)
        return tuple(e for e in found if e is not None)


def check_numbers(subject: Subject) -> None:
    """accuracy, lse, recipe, written, guard bands, inputs, empty rows: the whole deck."""
    for case in deck.accuracy_deck(subject.expressions, subject.short):  # type: ignore[arg-type]
        if not subject.fits(case):
            subject.tallies["accuracy"].count("sizes that the spec excludes", 1)
            continue
        subject.say(f"numbers: {case}")
        call, inputs = subject.call(case)
        run_and_judge(subject, call, inputs, case, "accuracy")


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
    missing = int(torch.isnan(o).sum())
    if missing:
        t["written"].fail(f"{case}: {missing} elements of O are NaN")
    if o.numel() == 0:
        return
    want = subject.run.expected(inputs)
    live = ~want.empty
    judge_empty(subject, call, o, want, case)
    if bool(live.any()):
        judge_live(subject, o, inputs, want, live, case, check)
    if call.lse is not None and want.lse is not None:
        t["lse"].case()
        largest = float(want.lse[live].abs().max()) if bool(live.any()) else 0.0
        share = judge_lse(call.lse, want.lse, live, largest, subject.run.approximate)
        t["lse"].measure(share, case)
        if not share <= 1.0:
            t["lse"].fail(f"{case}: {share:.3g} times the allowed error")


def judge_live(
    subject: Subject,
    o: Tensor,
    inputs: dict[str, Tensor],
    want: Expected,
    live: Tensor,
    case: object,
    check: str,
) -> None:
    """Rows that keep something, against the spec's own function."""
    t = subject.tallies
    exact = subject.run.exact(inputs)
    t["recipe"].case()
    scale = exact.abs().amax(-1, keepdim=True).clamp(min=1e-300)
    apart = torch.where(live[..., None], (want.o - exact).abs() / scale, 0.0)
    apart_by = float(torch.nan_to_num(apart, nan=float("inf")).max())
    t["recipe"].measure(apart_by / RECIPE_TOLERANCE, case)
    if not apart_by <= RECIPE_TOLERANCE:
        t["recipe"].fail(f"{case}: the recipe and the spec differ by {apart_by:.3g} of the row")
    low = subject.run.low(inputs)
    magnitude = subject.run.magnitude(inputs)
    factor = FACTOR_TANH if subject.run.approximate else FACTOR
    found = judge_output(o, exact, low, magnitude, live, factor)
    t[check].measure(max(found.share, found.row_share), case)
    if not found.ok:
        b, h, i, d = found.where
        t[check].fail(
            f"{case}: error {found.error:.3g}, {found.allowed:.3g} allowed "
            f"({found.row_share:.3g} of the rule per row); worst at b {b} h {h} i {i} d {d}: "
            f"{float(o[found.where]):.5g}, the spec gives {float(exact[found.where]):.5g}"
        )


def judge_empty(subject: Subject, call: Call, o: Tensor, want: Expected, case: object) -> None:
    """Rows that keep nothing: O = 0 and LSE = -inf, exactly."""
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
    if call.lse is not None and want.lse is not None:
        wrong = int((~torch.isneginf(call.lse[empty])).sum())
        if wrong:
            tally.fail(f"{case}: {wrong} of {count} rows without a key have LSE other than -inf")


def check_layouts(subject: Subject) -> None:
    """Every input and output in every memory layout, alone and all together."""
    sources = [b.source for b in subject.binding.tensors]
    case = _adapted(subject, deck.LAYOUT_CASE)
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
                if not odd:
                    tally.fail(f"{name}: the launch returned {status}")
                elif not call.untouched():
                    tally.fail(f"{name}: refused with {status}, yet an output was written")
                else:
                    tally.notes.setdefault("refused", []).append(f"{name}: status {status}")
                continue
            judge(subject, call, inputs, name, "layouts")


def check_keep_sets(subject: Subject) -> None:
    """V one-hot: O shows which pairs are kept, exactly, without a tolerance."""
    for case in deck.probe_deck(subject.expressions, subject.short):  # type: ignore[arg-type]
        if not subject.fits(case):
            subject.tallies["keep sets"].count("sizes that the spec excludes", 1)
            continue
        subject.say(f"keep sets: {case}")
        with subject.tallies.timed("keep sets") as tally:
            tally.case()
            shown = probe(subject, case)
            if isinstance(shown, str):
                tally.fail(shown)
                continue
            got, inputs = shown
            want = subject.run.weights(inputs)
            empty = subject.run.expected(inputs).empty
            # Rows without a key are the convention's, whatever the spec writes there.
            want = torch.where(empty[..., None], 0.0, want)
            seen = HOT[subject.dtype][1]
            unclear = (want != 0) & (want.abs() < seen)
            wrong = ((want == 0) & (got != 0)) | ((want.abs() >= seen) & (got == 0))
            wrong |= torch.isnan(got)
            tally.count("pairs", want.numel())
            tally.count("pairs too light to show", int(unclear.sum()))
            if bool(wrong.any()):
                b, h, i, j = (int(x) for x in wrong.nonzero()[0])
                how = "keeps" if float(got[b, h, i, j]) != 0 else "drops"
                tally.fail(
                    f"{case}: {int(wrong.sum())} pairs differ; first b {b} h {h} i {i} j {j}: the "
                    f"kernel {how} it, the spec's weight is {float(want[b, h, i, j]):.3g}"
                )


def probe(subject: Subject, case: Case) -> tuple[Tensor, dict[str, Tensor]] | str:
    """The matrix that the kernel multiplies V with, [B, Hq, Nq, Nk], Dv columns at a time."""
    sizes = subject.run.sizes(case, subject.d, subject.dv)
    inputs = subject.run.make_inputs(case, sizes, subject.dtype)
    q = subject.run.canonical(inputs, "q")
    inputs = subject.run.replaced(inputs, "q", q * 0.5)
    v = subject.run.canonical(inputs, "v")
    call = subject.again(case, subject.run.replaced(inputs, "v", torch.zeros_like(v)))
    name = subject.run.role["v"].name
    columns: list[Tensor] = []
    for first in range(0, case.Nk, subject.dv):
        count = min(subject.dv, case.Nk - first)
        hot = one_hot(v, first, subject.dv, HOT[subject.dtype][0])
        call.inputs[name].tensor.copy_(subject.run.replaced(inputs, "v", hot)[name])
        status = call.run()
        if status != 0:
            return f"{case}: the launch returned {status}"
        columns.append(subject.o(call)[..., :count].double() / HOT[subject.dtype][0])
    return torch.cat(columns, -1), inputs


def check_independence(subject: Subject) -> None:
    """Change V and K where a row does not keep them: its bits stay. Where it does: O moves."""
    for case in deck.INDEPENDENCE_CASES:
        if (fitted := _adapted(subject, case)) is None:
            continue
        subject.say(f"independence: {fitted}")
        with subject.tallies.timed("independence") as tally:
            _independence(subject, fitted, tally.case, tally.fail, tally.count)


def _independence(
    subject: Subject,
    case: Case,
    seen: Callable[[], None],
    fail: Callable[[str], None],
    count: Callable[[str, int], None],
) -> None:
    call, inputs = subject.call(case)
    if status := call.run():
        fail(f"{case}: the launch returned {status}")
        return
    o, lse = subject.o(call).clone(), None if call.lse is None else call.lse.clone()
    want = subject.run.expected(inputs)
    total = want.weights.sum(-1, keepdim=True).clamp(min=1e-300)
    share = want.weights / total if subject.run.recipe.weight is None else want.weights
    generator = torch.Generator(o.device).manual_seed(case.seed)
    picks = sorted({0, 1, case.Nk // 2, case.Nk - 2, case.Nk - 1, case.Nk // 3})
    for role in ("v", "k"):
        for j in picks:
            seen()
            value = subject.run.canonical(inputs, role).clone()
            draw = torch.randn(value[:, :, j].shape, device=value.device, generator=generator)
            value[:, :, j] = (3 * draw + 1).to(value.dtype)
            other = subject.again(case, subject.run.replaced(inputs, role, value))
            other.run()
            moved = _rows_differ(subject.o(other), o)
            if lse is not None and other.lse is not None:
                moved |= _differ(other.lse, lse)
            masked = ~want.keep[..., j]
            count("rows that must not move", int(masked.sum()))
            leaked = moved & masked
            if bool(leaked.any()):
                b, h, i = (int(x) for x in leaked.nonzero()[0])
                fail(
                    f"{case}: {role} at masked key {j} moves {int(leaked.sum())} rows; "
                    f"first b {b} h {h} i {i}"
                )
            if role == "v":
                stuck = ~moved & (share[..., j] > MOVED) & want.keep[..., j]
                if bool(stuck.any()):
                    b, h, i = (int(x) for x in stuck.nonzero()[0])
                    fail(
                        f"{case}: V at kept key {j} leaves {int(stuck.sum())} rows as they "
                        f"were; first b {b} h {h} i {i}"
                    )
    doubled = subject.run.canonical(inputs, "v") * 2
    other = subject.again(case, subject.run.replaced(inputs, "v", doubled))
    seen()
    other.run()
    # Doubling is exact in floating point, barring subnormals of O.
    normal = o.abs() >= 4 * torch.finfo(o.dtype).tiny
    if bool(((subject.o(other) != 2 * o) & normal).any()):
        fail(f"{case}: V doubled does not double O bit for bit")


def check_rewritten(subject: Subject) -> None:
    """New values written into the same storage must give new results."""
    case = _adapted(subject, deck.LAYOUT_CASE)
    if case is None:
        return
    subject.say(f"rewritten inputs: {case}")
    with subject.tallies.timed("rewritten inputs") as tally:
        call, _ = subject.call(case)
        call.run()
        sizes = subject.run.sizes(case, subject.d, subject.dv)
        for seed in (1, 2):
            tally.case()
            fresh = Case(case.B, case.Hq, case.Hkv, case.Nq, case.Nk, deck.PEAKED, 8000 + seed)
            inputs = subject.run.make_inputs(fresh, sizes, subject.dtype)
            for name, held in call.inputs.items():
                held.tensor.copy_(inputs[name])
            if status := call.run():
                tally.fail(f"{fresh}: the launch returned {status}")
                continue
            judge(subject, call, inputs, f"rewritten {fresh}", "rewritten inputs")


def check_repeats(subject: Subject) -> None:
    """The same launch again and again: the same bits."""
    case = _adapted(subject, deck.REPEAT_CASE)
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


def _adapted(subject: Subject, case: Case) -> Case | None:
    """The case, or its square where the spec demands Nq == Nk, or None where neither fits."""
    square = Case(case.B, case.Hq, case.Hkv, case.Nq, case.Nq, case.values, case.seed)
    equal = Case(case.B, case.Hq, case.Hq, case.Nq, case.Nq, case.values, case.seed)
    return next((c for c in (case, square, equal) if subject.fits(c)), None)


def _differ(a: Tensor, b: Tensor) -> Tensor:
    kind = torch.int16 if a.element_size() == 2 else torch.int32
    return a.contiguous().view(kind) != b.contiguous().view(kind)


def _rows_differ(a: Tensor, b: Tensor) -> Tensor:
    return _differ(a, b).any(-1)


CHECKS_IN_ORDER: tuple[Callable[[Subject], None], ...] = (
    check_numbers,
    check_layouts,
    check_keep_sets,
    check_independence,
    check_rewritten,
    check_repeats,
)
