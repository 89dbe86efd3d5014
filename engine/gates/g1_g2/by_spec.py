"""G2 for a spec that no recipe could be read from: the target against the spec's own function.

The function is run in float64 on the deck and its output compared element by element; with one-hot
V it also gives back its weights, so keep sets are compared as well. What only a recipe can say is
not compared, and the verdict says so: LSE, and which rows count as having no kept key (a row that
the spec gives as NaN must be 0).

Runs in the torch child only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from engine.errors import SpecError
from engine.gates.deck import Case
from engine.gates.runs.case_run import Compare, Row, Way, execute, hot_like, make_case, with_logits
from engine.gates.runs.deck_cases import legal_cases
from engine.gates.runs.output_comparison import EXACT_TOLERANCE, roundoff, rows_equal
from engine.gates.runs.stable_logits import UNSOUND, UNUSUAL, finite_as_ever, overflows, steady
from engine.gates.runs.subject import Failure, Subject, as_typed
from engine.spec.decks.logit_levels import factor_that_shows
from engine.spec.python.signature import Signature
from engine.spec.python.spec_file import read_source
from engine.spec.python.without_recipe import integers_of, integers_redrawn
from engine.spec.reference.oracle import as_bhnd, output_as_bhnd

TINY = 1e-250  # weights below are no weights: sums in another order may or may not reach 0
FEWEST = 4  # cases with keys that must have been compared for a pass
COMPARED = (
    "O and the weights of one-hot V equal the spec's function; no recipe, so LSE is not compared"
)


def too_few(done: Sequence[Row]) -> Failure | None:
    """Where the spec runs at hardly any size of the deck, nothing is known of the target."""
    compared = sum(row["mode"] == "exact" and "O" in row for row in done)
    if compared >= FEWEST:
        return None
    why = next((r["skipped"] for r in done if "skipped" in r), "no case fits the spec's sizes")
    return Failure(f"only {compared} cases could be compared: {why}")


def unread_cases(subject: Subject) -> list[Case]:
    """The deck of a spec that no recipe could be read from."""
    return legal_cases(subject, written(subject))


def as_found(_: Subject, __: Sequence[Case], ___: int, failure: Failure) -> Failure:
    """The failure as it is: without a recipe nothing tells which op is wrong."""
    return failure


def written(subject: Subject) -> list[int]:
    """The integers of the spec's file and options: any of them may be a window or a block."""
    return list(integers_of(read_source(subject.spec, dict(subject.options))))


def drawn(subject: Subject, case: Case, seed: int) -> tuple[dict[str, Any], dict[str, int]]:
    """The case's inputs, their integers as the spec runs with them."""
    inputs, sizes = make_case(subject, case, seed)

    def runs(tried: Mapping[str, Tensor]) -> bool:
        return isinstance(_spec(subject, tried), Tensor)

    return integers_redrawn(Signature.of(subject.recipe), inputs, sizes, seed, runs), sizes


def _spec(subject: Subject, inputs: Mapping[str, Any]) -> Tensor | str:
    """The spec's output, or why it does not run at these sizes."""
    try:
        return output_as_bhnd(subject.recipe, subject.function.wide(inputs))
    except SpecError as error:
        return f"the spec does not run at these sizes: {error.message}"


def compared(subject: Subject, case: Case, inputs: Mapping[str, Any]) -> Compare | str:
    """What exact outputs are compared with, or why the spec does not run at these sizes."""
    want = _spec(subject, inputs) if case.Nq and case.Nk else None
    if isinstance(want, str):
        return want
    sound: Tensor | None = None
    if want is not None and case.values in UNUSUAL:
        spec, q = partial(_spec, subject), _query(subject)
        if not finite_as_ever(spec, inputs, q, want):
            return UNSOUND
        sound = steady(spec, inputs, q, want)

    def compare(out: Mapping[str, Tensor]) -> tuple[Failure | None, Row]:
        o = output_as_bhnd(subject.recipe, out["O"])
        if want is None:
            return (Failure("without keys O is not 0") if bool((o != 0).any()) else None), {}
        there = _without_nan_rows(want)
        if sound is not None:
            o, there = (t.masked_fill(~sound[..., None], 0.0) for t in (o, there))
        failure, worst = rows_equal(o, there, "O")
        return failure, {"O": worst}

    return compare


def _query(subject: Subject) -> str:
    return next(i.name for i in subject.recipe.inputs if i.role == "q")


def _without_nan_rows(o: Tensor) -> Tensor:
    """Rows that are all NaN kept nothing: our convention there is 0."""
    return o.masked_fill(o.isnan().all(-1, keepdim=True), 0.0)


def _typed(subject: Subject, case: Case, seed: int) -> tuple[Failure | None, Row]:
    """FlashAttention's rule, as in `judge`: twice the error of PyTorch in low precision."""
    row: Row = {"case": str(case), "mode": "typed"}
    if not (case.Nq and case.Nk):
        return None, row
    inputs, sizes = drawn(subject, case, seed)
    low = as_typed(subject, inputs)
    wide = {
        n: t.double() if isinstance(t, Tensor) and t.is_floating_point() else t
        for n, t in low.items()
    }
    want = _spec(subject, wide)
    if isinstance(want, str):
        return None, row | {"skipped": want}
    if case.values in UNUSUAL:
        spec = partial(_spec, subject)
        if not finite_as_ever(spec, wide, _query(subject), want):
            return None, row | {"skipped": UNSOUND}
    try:
        plain = output_as_bhnd(subject.recipe, subject.function.low(low))
    except SpecError as error:
        return None, row | {"skipped": f"the spec does not run in low precision: {error.message}"}
    if case.values in UNUSUAL and overflows(plain, want):
        return None, row | {"skipped": UNSOUND}
    failure, out = execute(subject, case, low, sizes, "typed", seed)
    if failure is not None:
        return failure, row
    nothing = want.isnan().all(-1, keepdim=True)
    got = output_as_bhnd(subject.recipe, out["O"]).double()
    if bool((got.masked_select(nothing.expand_as(got)) != 0).any()):
        return Failure("a row that the spec gives as NaN is not 0"), row
    kept = ~nothing.expand_as(want)
    zero = torch.zeros(1, dtype=torch.float64)

    def worst(error: Tensor, missing: float) -> float:
        chosen = error.abs().masked_select(kept).nan_to_num(missing, missing)
        return float(torch.cat([chosen, zero]).max())

    rounding = roundoff(subject.dtype) * worst(want, 0.0)
    bound = 2 * worst(plain.double() - want, 0.0) + 2 * rounding
    row |= {"error": worst(got - want, math.inf), "bound": bound}
    if row["error"] > bound:
        reason = f"the rounding error {row['error']:.3g} is over FlashAttention's bound {bound:.3g}"
        return Failure(reason, counterexample={"case": str(case)}), row
    return None, row


def _probe(subject: Subject, case: Case, seed: int) -> tuple[Failure | None, Row]:
    """The weights themselves: O with one-hot V is one column of them per key."""
    inputs, sizes = drawn(subject, case, seed)
    row: Row = {"case": str(case), "mode": "weights"}
    width = subject.columns["Dv"]
    firsts = range(0, sizes["Nk"], width)

    def weights_at(factor: float) -> Tensor:
        smaller = with_logits(subject, inputs, factor)
        parts = [_spec(subject, _one_hot(subject, smaller, first)) for first in firsts]
        whole = [_without_nan_rows(p) for p in parts if isinstance(p, Tensor)]
        return torch.cat(whole, -1) if whole else torch.zeros(0)

    inputs = with_logits(subject, inputs, factor_that_shows(weights_at, TINY))
    pairs = 0
    for first in firsts:
        columns = min(width, sizes["Nk"] - first)
        probe = _one_hot(subject, inputs, first)
        spec = _spec(subject, probe)
        if isinstance(spec, str):
            return None, row | {"skipped": spec}
        failure, out = execute(subject, case, probe, sizes, "exact", seed)
        if failure is not None:
            return failure, row
        want = _without_nan_rows(spec)[..., :columns]
        got = output_as_bhnd(subject.recipe, out["O"])[..., :columns]
        wrong = ((want.abs() > TINY) != (got.abs() > TINY)) | ~torch.isclose(
            got, want, rtol=EXACT_TOLERANCE, atol=EXACT_TOLERANCE
        )
        pairs += int((want.abs() > TINY).sum())
        if bool(wrong.any()):
            b, h, i, j = (int(x) for x in wrong.nonzero()[0])
            example = {
                "b": b, "h": h, "i": i, "j": j + first,
                "expected": float(want[b, h, i, j]), "got": float(got[b, h, i, j]),
            }  # fmt: skip
            reason = (
                f"the weight of a pair differs: at b={b}, h={h}, i={i}, j={j + first} the spec "
                f"gives {example['expected']:.6g}, the target {example['got']:.6g}"
            )
            return Failure(reason, counterexample=example), row
    row["kept"] = pairs
    return None, row


def _no_mask(subject: Subject, case: Case, seed: int) -> tuple[Failure | None, Row]:
    """Without a recipe nothing says what is kept, and no case asks."""
    raise AssertionError("a case under the mask without a recipe")


def _one_hot(subject: Subject, inputs: Mapping[str, Any], first: int) -> dict[str, Any]:
    """The inputs with a V of which column d is 1 at key `first` + d, and 0 elsewhere."""
    v = next(i for i in subject.recipe.inputs if i.role == "v")
    hot = as_bhnd(v, torch.zeros_like(inputs[v.name]))
    for d in range(min(subject.columns["Dv"], hot.shape[2] - first)):
        hot[:, :, first + d, d] = 1.0
    return dict(inputs) | {v.name: hot_like(v, hot, inputs[v.name])}


BY_SPEC = Way(unread_cases, drawn, compared, _typed, _probe, _no_mask, as_found, too_few)
