"""Probes of the mask that need no tolerance: one-hot V, and what must not move a row."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.cuir.nodes import Num
from engine.errors import SpecError
from engine.spec.decks.logit_levels import factor_that_shows
from engine.spec.reference.oracle import Expected
from engine.transfer.inside import inside, outside_range, with_nan
from engine.worker.launches.result_rows import Tally
from engine.worker.launches.specialisation import Subject
from engine.worker.orchestration.checklist import NOT_LINEAR
from engine.worker.problems import problem_sizes as deck
from engine.worker.problems.problem_sizes import Case
from engine.worker.problems.specrun import one_hot

# V's hot element, and the weight from which on it must show in O. P is rounded to the inputs'
# format before it is normalised, so float16 loses weights under 2^-25 of the largest; bfloat16 has
# float32's exponents.
_WIDE = (2.0**40, 1e-30)
HOT = {torch.float16: (2.0**15, 1e-7), torch.bfloat16: _WIDE, torch.float32: _WIDE}
MOVED = 1e-3  # a weight from which on a changed V must change O
UNRUN = "sizes at which the spec does not run"
CLEAR = 2.0**-5  # a change of O, as a share of its row, that no rounding hides
MAY_READ = "not asked of someone else's launcher, which may read what it masks"
NOISE = 1e-5  # of a row's largest weight: what float32 makes of a weight that is 0 by cancellation


def check_keep_sets(subject: Subject) -> None:
    """V one-hot: O shows which pairs are kept, exactly, without a tolerance.

    Without a recipe a weight of 0 may be a masked pair or a weight that vanishes (relu): what
    float32 leaves of such a one is counted and not judged. Where O is not linear in V, as after a
    norm, its zeros show the pairs all the same if the spec's own do.
    """
    if not (subject.linear or subject.zeros_show_pairs):
        subject.tallies["keep sets"].note(reason=NOT_LINEAR)
        return
    cases = deck.probe_deck(subject.expressions, subject.short, subject.section)
    for case in subject.of_deck(cases):
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
            try:
                want = subject.run.weights(inputs)
                empty = subject.run.outcome(inputs).empty
            except SpecError:
                if subject.run.recipe is not None:
                    raise
                tally.withdraw(UNRUN)
                continue
            # Rows without a key are the convention's, whatever the spec writes there.
            want = torch.where(empty[..., None], 0.0, want)
            seen = HOT[subject.dtype][1]
            unclear = (want != 0) & (want.abs() < seen)
            shown_where_none = (want == 0) & (got != 0)
            if subject.run.recipe is None:
                faint = shown_where_none & (got.abs() <= NOISE * want.abs().amax(-1, keepdim=True))
                tally.count("pairs of weight 0 within float32's rounding", int(faint.sum()))
                shown_where_none &= ~faint
            wrong = shown_where_none | ((want.abs() >= seen) & (got == 0))
            wrong |= torch.isnan(got)
            tally.count("pairs", want.numel())
            tally.count("pairs too light to show", int(unclear.sum()))
            if bool(wrong.any()):
                b, h, i, j = (int(x) for x in wrong.nonzero()[0])
                tally.picture(case, (b, h, i), "weights", got[b, h], want[b, h])
                how = "keeps" if float(got[b, h, i, j]) != 0 else "drops"
                tally.fail(
                    f"{case}: {int(wrong.sum())} pairs differ; first b {b} h {h} i {i} j {j}: the "
                    f"kernel {how} it, the spec's weight is {float(want[b, h, i, j]):.3g}"
                )


def probe(subject: Subject, case: Case) -> tuple[Tensor, dict[str, Tensor]] | str:
    """The matrix that the kernel multiplies V with, [B, Hq, Nq, Nk], Dv columns at a time."""
    sizes = subject.run.sizes(case, subject.d, subject.dv)
    inputs = subject.run.make_inputs(case, sizes, subject.dtype)
    q = subject.run.canonical(inputs, "q") * 0.5

    def at(factor: float) -> dict[str, Tensor]:
        return subject.run.replaced(inputs, "q", q * factor)

    with contextlib.suppress(SpecError):  # said where the weights are judged
        seen = HOT[subject.dtype][1]
        q = q * factor_that_shows(lambda f: subject.run.weights(at(f)), seen)
    inputs = at(1.0)
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
    """Change V and K where a row does not keep them: its bits stay. Where it does: O moves.

    Which rows a change concerns is what the recipe keeps; without one, what the spec's function
    makes of the change in float64.
    """
    for case in deck.INDEPENDENCE_CASES:
        if (fitted := subject.adapted(case)) is None:
            continue
        subject.say(f"independence: {fitted}")
        with subject.tallies.timed("independence") as tally:
            _independence(subject, fitted, tally)


def check_under_mask(subject: Subject) -> None:
    """NaN in K and V beyond the keys that a block of rows keeps leaves the block's bits alone; NaN
    in V at a kept key is NaN in the rows that keep it."""
    recipe = subject.run.recipe
    if recipe is None or recipe.keep == Num(True):
        return
    if subject.terms.theirs:
        subject.tallies["independence"].note(**{"NaN under the mask": MAY_READ})
        return
    for case in deck.UNDER_MASK_CASES:
        if (fitted := subject.adapted(case)) is None:
            continue
        subject.say(f"under the mask: {fitted}")
        with subject.tallies.timed("independence") as tally:
            _under_mask(subject, fitted, tally)


def _under_mask(subject: Subject, case: Case, tally: Tally) -> None:
    run, recipe = subject.run, subject.run.recipe
    assert recipe is not None
    call, inputs = subject.call(case)
    if status := call.run():
        tally.case()
        tally.fail(f"{case}: the launch returned {status}")
        return
    o, lse = subject.o(call).clone(), None if call.lse is None else call.lse.clone()
    want, sizes = run.expected(inputs), run.sizes(case, subject.d, subject.dv)
    keep = want.keep
    with torch.device(run.device):
        pairs = inside(recipe, want, inputs, listed=subject.binding.workspace is not None)
    size = subject.constants.get("BM", case.Nq)
    for first in range(0, case.Nq, size):
        block = slice(first, min(first + size, case.Nq))
        outside = outside_range(recipe, pairs, sizes, block, inputs)
        tally.case()
        tally.count("keys under the mask that held NaN", int(outside.sum()))
        other = subject.again(case, with_nan(recipe, inputs, outside, ("k", "v")))
        other.run()
        moved = _rows_differ(subject.o(other), o)
        if lse is not None and other.lse is not None:
            moved |= _differ(other.lse, lse)
        if bool((leaked := moved[:, :, block]).any()):
            b, h, i = (int(x) for x in leaked.nonzero()[0])
            tally.fail(
                f"{case}: NaN where rows {block.start} to {block.stop - 1} keep nothing moves "
                f"{int(leaked.sum())} of them; first b {b} h {h} i {i + block.start}"
            )
    key = int(keep.sum((0, 1, 2)).argmax())
    where = torch.zeros(case.B, case.Hkv, case.Nk, dtype=torch.bool, device=o.device)
    where[..., key] = True
    tally.case()
    other = subject.again(case, with_nan(recipe, inputs, where, ("v",)))
    other.run()
    heavy = keep[..., key] & (run.expected(inputs).weights[..., key] > MOVED)
    if bool((lost := heavy & ~subject.o(other).isnan().all(-1)).any()):
        b, h, i = (int(x) for x in lost.nonzero()[0])
        tally.fail(f"{case}: NaN in V at kept key {key} is lost; first b {b} h {h} i {i}")


@dataclass(frozen=True)
class _Concerned:
    """Rows [B, Hq, Nq] that a change must leave alone, and that it must move."""

    stay: Tensor
    move: Tensor


def _by_recipe(want: Expected, softmax: bool, role: str, j: int) -> _Concerned:
    total = want.weights.sum(-1, keepdim=True).clamp(min=1e-300)
    share = want.weights / total if softmax else want.weights
    keep = want.keep[..., j]
    heavy = keep & (share[..., j] > MOVED)
    return _Concerned(~keep, heavy if role == "v" else torch.zeros_like(keep))


def _by_spec(before: Tensor, after: Tensor, unread: Tensor | None) -> _Concerned:
    """From O in float64 before and after the change; NaN equals itself.

    `unread` are rows that do not read the key's V at all. A change of K leaves also those rows that
    keep this key alone, in exact arithmetic: of these nothing is asked.
    """
    same = ((before == after) | (before.isnan() & after.isnan())).all(-1)
    size = torch.maximum(before.abs(), after.abs()).nan_to_num().amax(-1)
    change = (after - before).abs().nan_to_num().amax(-1)
    return _Concerned(same if unread is None else same & unread, change > CLEAR * size)


def _independence(subject: Subject, case: Case, tally: Tally) -> None:
    call, inputs = subject.call(case)
    if status := call.run():
        tally.case()
        tally.fail(f"{case}: the launch returned {status}")
        return
    run = subject.run
    o = subject.o(call).clone()
    # Where nothing says what LSE is, nothing says what may move it.
    lse = None if call.lse is None or run.recipe is None else call.lse.clone()
    try:
        want = run.outcome(inputs)
    except SpecError:
        if run.recipe is not None:
            raise
        tally.count(UNRUN, 1)
        return
    softmax = run.recipe is not None and run.recipe.weight is None
    unread: dict[int, Tensor] = {}  # by key, rows that V there leaves alone
    generator = torch.Generator(o.device).manual_seed(case.seed)
    picks = sorted({0, 1, case.Nk // 2, case.Nk - 2, case.Nk - 1, case.Nk // 3})
    for role in ("v", "k"):
        for j in picks:
            tally.case()
            value = run.canonical(inputs, role).clone()
            draw = torch.randn(value[:, :, j].shape, device=value.device, generator=generator)
            value[:, :, j] = (3 * draw + 1).to(value.dtype)
            changed = run.replaced(inputs, role, value)
            other = subject.again(case, changed)
            other.run()
            moved = _rows_differ(subject.o(other), o)
            if lse is not None and other.lse is not None:
                moved |= _differ(other.lse, lse)
            if want.read is not None:
                rows = _by_recipe(want.read, softmax, role, j)
            else:
                assert want.exact is not None
                rows = _by_spec(want.exact, run.exact(changed), unread.get(j))
                unread.setdefault(j, rows.stay)
            tally.count("rows that must not move", int(rows.stay.sum()))
            tally.count("rows that must move", int(rows.move.sum()))
            if bool((leaked := moved & rows.stay).any()):
                b, h, i = (int(x) for x in leaked.nonzero()[0])
                tally.fail(
                    f"{case}: {role} at masked key {j} moves {int(leaked.sum())} rows; "
                    f"first b {b} h {h} i {i}"
                )
            if bool((stuck := rows.move & ~moved).any()):
                b, h, i = (int(x) for x in stuck.nonzero()[0])
                tally.fail(
                    f"{case}: {role} at kept key {j} leaves {int(stuck.sum())} rows as they "
                    f"were; first b {b} h {h} i {i}"
                )
    if not subject.linear:
        return
    doubled = run.canonical(inputs, "v") * 2
    other = subject.again(case, run.replaced(inputs, "v", doubled))
    tally.case()
    other.run()
    # Doubling is exact in floating point, barring subnormals of O.
    normal = o.abs() >= 4 * torch.finfo(o.dtype).tiny
    if bool(((subject.o(other) != 2 * o) & normal).any()):
        tally.fail(f"{case}: V doubled does not double O bit for bit")


def _differ(a: Tensor, b: Tensor) -> Tensor:
    kind = torch.int16 if a.element_size() == 2 else torch.int32
    return a.contiguous().view(kind) != b.contiguous().view(kind)


def _rows_differ(a: Tensor, b: Tensor) -> Tensor:
    return _differ(a, b).any(-1)
