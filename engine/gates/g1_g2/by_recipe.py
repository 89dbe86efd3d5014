"""A module against a spec whose recipe was read, in both modes.

Exact mode (every value float64) judges the algebra: O, LSE and the keep set. Typed mode judges the
rounding by FlashAttention's rule: the error is at most twice that of the spec run in low precision
by PyTorch, plus rounding. The comparison never uses the kernel's own index or mask code: the
expected values come from the spec's function.

Runs in the torch child only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from engine.errors import SpecError, Where
from engine.gates.analysis.size_comparisons import first_met, thresholds
from engine.gates.deck import Case
from engine.gates.diagnosis.first_wrong_op import diagnose, lse_path
from engine.gates.runs.case_run import (
    Compare,
    Row,
    Way,
    execute,
    make_case,
    weights_of,
    with_logits,
)
from engine.gates.runs.deck_cases import read_cases
from engine.gates.runs.nan_inputs import run_under_mask
from engine.gates.runs.output_comparison import (
    EXACT_TOLERANCE,
    SUMMED_TOLERANCE,
    lse_equal,
    roundoff,
    rows_equal,
    typed_lse,
)
from engine.gates.runs.stable_logits import UNSOUND, UNUSUAL, overflows, steady
from engine.gates.runs.subject import Failure, Subject, as_typed, op_text
from engine.spec.decks.extreme_biases import PATTERNS, adds_several
from engine.spec.decks.logit_levels import factor_that_shows
from engine.spec.reference.oracle import expected, output_as_bhnd

TINY = 1e-250  # a weight below may or may not reach 0 where it is computed in another order
MAX_DIAGNOSED = 400  # keys: beyond that a failure keeps its numbers only


def compared(subject: Subject, case: Case, inputs: Mapping[str, Any]) -> Compare | str:
    """What exact outputs are compared with, O and LSE where there is one; or why nothing is."""
    if case.Nq == 0 or case.Nk == 0:
        # Specs need not run on nothing; the convention is O = 0, and LSE = -inf or the sink.
        sums = expected(subject.recipe, inputs).lse
        return lambda out: (_is_nothing(subject, out, case, sums), {})
    want = expected(subject.recipe, inputs)

    def spec(given: Mapping[str, Any]) -> Tensor:
        return output_as_bhnd(subject.recipe, subject.function.wide(given))

    spec_o = spec(inputs)
    # Rows without a kept key: our convention is O = 0; what the spec gives there is its own affair.
    o_want = torch.where(want.empty[..., None], torch.zeros_like(want.o), spec_o)
    # Where -inf took every key, or made the spec NaN, there is nothing to hold a kernel to.
    bias = case.values == "bias-inf"
    sound = torch.isfinite(spec_o).all(-1) & torch.isfinite(o_want).all(-1) & ~want.taken
    if case.values in UNUSUAL:
        if not bool(torch.isfinite(o_want).all()):
            return UNSOUND
        sound = want.empty | steady(spec, inputs, _query(subject), spec_o) & ~want.taken
    summed = case.values in PATTERNS and adds_several(subject.recipe)
    tolerance = SUMMED_TOLERANCE if summed else EXACT_TOLERANCE
    _same_as_read(subject, case, want.o, o_want, sound, tolerance)
    partly = bias or case.values in UNUSUAL

    def compare(out: Mapping[str, Tensor]) -> tuple[Failure | None, Row]:
        row: Row = {}
        o = output_as_bhnd(subject.recipe, out["O"])
        there = o_want
        if partly:
            row["rows"] = int(sound.sum())
            o, there = (t.masked_fill(~sound[..., None], 0.0) for t in (o, o_want))
        failure, row["O"] = rows_equal(o, there, "O", tolerance)
        if failure is None and not bias and want.lse is not None and "LSE" in out:
            failure, row["LSE"] = lse_equal(out["LSE"], want.lse)
        return failure, row

    return compare


def _same_as_read(
    subject: Subject, case: Case, read: Tensor, said: Tensor, sound: Tensor, tolerance: float
) -> None:
    """The function must compute what was read from it when it was traced: LSE and keep sets are
    judged by the recipe, O by the function."""
    rows = ~sound[..., None]
    said = said.masked_fill(rows, 0.0)
    differs, _ = rows_equal(read.masked_fill(rows, 0.0), said, "O", tolerance)
    if differs is not None:
        at = differs.counterexample or {}
        raise SpecError(
            "the spec's function computes something else than what was read from it: at "
            f"b={at['b']}, h={at['h']}, i={at['i']} it gives {at['expected']:.6g}, the recipe "
            f"{at['got']:.6g} ({case})",
            where=Where(str(subject.spec)),
            fix="let the function depend on its inputs alone: not on how often, where or by whom "
            "it is called",
        )


def _query(subject: Subject) -> str:
    return next(i.name for i in subject.recipe.inputs if i.role == "q")


def _is_nothing(
    subject: Subject, out: Mapping[str, Tensor], case: Case, sums: Tensor | None
) -> Failure | None:
    """Without keys every row of O is 0, and LSE holds a sink or -inf."""
    o = output_as_bhnd(subject.recipe, out["O"])
    failure, _ = rows_equal(o, torch.zeros_like(o), "O without keys")
    if failure is None and sums is not None and "LSE" in out:
        failure, _ = lse_equal(out["LSE"], sums, "LSE without keys")
        if failure is not None and (path := lse_path(subject.module)) is not None:
            failure = replace(failure, op=op_text(path))
    if failure is None:
        return None
    return replace(failure, counterexample={**(failure.counterexample or {}), "case": str(case)})


def _typed(subject: Subject, case: Case, seed: int) -> tuple[Failure | None, Row]:
    """Declared types: at most twice the error of PyTorch in low precision, plus rounding."""
    inputs, sizes = make_case(subject, case, seed)
    low = as_typed(subject, inputs)
    row: Row = {"case": str(case), "mode": "typed"}
    wide = {
        n: t.double() if isinstance(t, Tensor) and t.is_floating_point() else t
        for n, t in low.items()
    }
    want = expected(subject.recipe, wide)
    reference = output_as_bhnd(subject.recipe, subject.function.wide(wide))
    sound = reference.isfinite().all(-1) | want.empty
    plain = output_as_bhnd(subject.recipe, subject.function.low(low)).double()
    if case.values in UNUSUAL and (not bool(sound.all()) or overflows(plain, reference)):
        return None, row | {"skipped": UNSOUND}
    failure, out = execute(subject, case, low, sizes, "typed", seed)
    if failure is not None:
        return failure, row
    kept = ~(want.empty | want.taken)[..., None].expand_as(reference)
    got = output_as_bhnd(subject.recipe, out["O"]).double()
    if bool((got[want.empty] != 0).any()):
        return Failure("a row without a kept key is not 0"), row
    zero = torch.zeros(1, dtype=torch.float64)
    error = torch.cat([(got - reference).abs().masked_select(kept), zero])
    error = error.nan_to_num(math.inf, math.inf)
    allowed = torch.cat([(plain - reference).abs().masked_select(kept), zero])
    # Where PyTorch itself overflows it is no yardstick: such an element allows nothing.
    allowed = allowed.nan_to_num(0.0, 0.0, 0.0)
    largest = torch.cat([reference.abs().masked_select(kept), zero]).nan_to_num(0.0, 0.0, 0.0)
    bound = 2 * float(allowed.max()) + 2 * roundoff(subject.dtype) * float(largest.max())
    row |= {"error": float(error.max()), "bound": bound}
    if row["error"] > bound:
        reason = f"the rounding error {row['error']:.3g} is over FlashAttention's bound {bound:.3g}"
        return Failure(reason, counterexample={"case": str(case)}), row
    if want.lse is not None and "LSE" in out:
        failure, row["LSE"] = typed_lse(out["LSE"].double(), want.lse)
        return failure, row
    return None, row


def _probe(subject: Subject, case: Case, seed: int) -> tuple[Failure | None, Row]:
    """The keep set, exactly: one-hot V gives back every weight."""
    inputs, sizes = make_case(subject, case, seed)

    def at(factor: float) -> dict[str, Any]:
        return with_logits(subject, inputs, factor)

    def of_kept(factor: float) -> Tensor:
        there = expected(subject.recipe, at(factor))
        return there.weights[there.keep]

    inputs = at(factor_that_shows(of_kept, TINY))
    want = expected(subject.recipe, inputs)
    # relu gives kept pairs the weight of removed ones, and so does a score of -10000.
    keep = want.keep & (want.weights != 0)
    unclear = want.keep & (want.weights.abs() < TINY) & keep
    row: Row = {"case": str(case), "mode": "keep set"}
    failure, got = weights_of(subject, case, inputs, sizes, seed)
    if failure is not None or got is None:
        return failure, row
    row["kept"] = int(keep.sum())
    row["hidden"] = int((want.keep & ~keep | unclear).sum())
    wrong = ((got != 0) != keep) & ~unclear
    if not bool(wrong.any()):
        return None, row
    b, h, i, j = (int(x) for x in wrong.nonzero()[0])
    kept = bool(keep[b, h, i, j])
    example = {"b": b, "h": h, "i": i, "j": j, "expected": kept, "got": not kept}
    words, other = ("keeps", "masks") if kept else ("masks", "keeps")
    reason = (
        f"the keep set differs: at b={b}, h={h}, i={i}, j={j} the spec {words} the pair, "
        f"the target {other} it"
    )
    return Failure(reason, counterexample=example), row


def located(subject: Subject, deck: Sequence[Case], seed: int, failure: Failure) -> Failure:
    """The failure of a case with the first wrong op, where the numbers or the case tell it."""
    case = deck[seed]
    new = first_met(thresholds(subject.module), deck[:seed], case)
    if new is not None:
        one, outcome = new
        reason = f"{failure.reason}; it is the first run with {one.words(outcome)}"
        return replace(failure, reason=reason, op=op_text(one.path))
    if failure.op is not None or not case.Nk or case.Nk > MAX_DIAGNOSED:
        return failure
    inputs, sizes = make_case(subject, case, seed)
    fault, got = weights_of(subject, case, inputs, sizes, seed)
    if fault is not None or got is None:
        return failure if fault is None else replace(failure, op=fault.op)
    want = expected(subject.recipe, inputs).weights
    # Of an output that becomes something else one-hot V gives back no weights.
    changed = subject.recipe.changes_output
    found = None if changed else diagnose(subject, case, got, want, sizes)
    if found is None:
        path = lse_path(subject.module) if failure.reason.startswith("LSE") else None
        return failure if path is None else replace(failure, op=op_text(path))
    return replace(
        failure,
        reason=f"{failure.reason}; {found.words}",
        op=op_text(found.path),
        counterexample={**found.example, "compared": "weights of one-hot V"},
    )


def none_compared(done: Sequence[Row]) -> Failure | None:
    """Runs of which none was compared with the spec are no pass."""
    if any(row["mode"] == "exact" and "O" in row and row.get("rows") != 0 for row in done):
        return None
    why = next((r["skipped"] for r in done if "skipped" in r), "no case has rows to compare")
    return Failure(f"no run could be compared with the spec: {why}")


BY_RECIPE = Way(
    read_cases, make_case, compared, _typed, _probe, run_under_mask, located, none_compared
)  # fmt: skip
