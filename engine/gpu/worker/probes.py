"""Probes of the mask that need no tolerance: one-hot V, and what must not move a row."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from engine.gpu.worker import cases as deck
from engine.gpu.worker.cases import Case
from engine.gpu.worker.specrun import one_hot
from engine.gpu.worker.subject import Subject

# V's hot element, and the weight from which on it must show in O. P is rounded to the inputs'
# format before it is normalised, so float16 loses weights under 2^-25 of the largest; bfloat16 has
# float32's exponents.
HOT = {torch.float16: (2.0**15, 1e-7), torch.bfloat16: (2.0**40, 1e-30)}
MOVED = 1e-3  # a weight from which on a changed V must change O


def check_keep_sets(subject: Subject) -> None:
    """V one-hot: O shows which pairs are kept, exactly, without a tolerance."""
    for case in deck.probe_deck(subject.expressions, subject.short):
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
        if (fitted := subject.adapted(case)) is None:
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


def _differ(a: Tensor, b: Tensor) -> Tensor:
    kind = torch.int16 if a.element_size() == 2 else torch.int32
    return a.contiguous().view(kind) != b.contiguous().view(kind)


def _rows_differ(a: Tensor, b: Tensor) -> Tensor:
    return _differ(a, b).any(-1)
