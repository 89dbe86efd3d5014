"""A small counterexample in words: where along the row of weights a wrong target goes wrong.

O with a one-hot V is a row of weights, from the spec and from the target alike. Their difference
tells a wrong mask from a wrong score, a wrong normaliser, or a fault after the weights.

Runs in the torch child only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from engine.errors import CuBridgeError
from engine.gates.deck import Case
from engine.gates.runs.case_run import Way, execute, hot_like
from engine.gates.runs.subject import Failure, Subject
from engine.spec import expected
from engine.spec.reference.error_grid import error_grid
from engine.spec.reference.oracle import as_bhnd, output_as_bhnd

SHOWN = 12
MOST_KEYS = 512  # whose weights are looked at: a run for each Dv of them
CLOSE = 1e-9


def explain(
    way: Way, subject: Subject, case: Case, seed: int, failure: Failure, read: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The counterexample with weights beside it, and pictures of |error| over (i, d) and (i, j) in
    its batch and head; the counterexample alone, and none, where they cannot be had."""
    example = dict(failure.counterexample or {})
    if not {"b", "h", "i"} <= set(example) or not case.Nk:
        return example, {}
    example["case"] = str(case)
    try:
        drawn = way.draw(subject, case, seed)
        nothing = _empty(subject, drawn[0], example) if read else None
        want, got, first = _weights(subject, case, drawn, seed, example)
        pictures = _pictures(subject, case, drawn, seed, example, nothing)
    except (CuBridgeError, ValueError, RuntimeError, KeyError):
        return example, {}
    if nothing is not None:
        want = want.masked_fill(nothing[:, None], 0.0)
    pictures["weights"] = error_grid(got, want, first)
    row = int(example["i"])
    keys = [
        {"j": first + j, "expected": float(w), "got": float(g)}
        for j, (w, g) in enumerate(zip(want[row], got[row], strict=True))
        if not math.isclose(float(w), float(g), rel_tol=CLOSE, abs_tol=1e-12)
    ]
    example["wrong_keys"] = len(keys)
    example["keys"] = keys[:SHOWN]
    example["diagnosis"] = diagnosis(want[row], got[row], first)
    return example, {name: grid for name, grid in pictures.items() if "9" in "".join(grid["cells"])}


def _empty(subject: Subject, inputs: Mapping[str, Any], at: Mapping[str, Any]) -> Tensor:
    """Rows of the counterexample's batch and head that keep no key, [Nq]."""
    return expected(subject.recipe, inputs).empty[int(at["b"]), int(at["h"])]


def _pictures(
    subject: Subject, case: Case, drawn: tuple[dict[str, Any], dict[str, int]], seed: int,
    at: Mapping[str, Any], nothing: Tensor | None,
) -> dict[str, Any]:  # fmt: skip
    """|error| of O over (i, d), with the case's own V."""
    place, (inputs, sizes) = (int(at["b"]), int(at["h"])), drawn
    want = output_as_bhnd(subject.recipe, subject.function.wide(inputs))[place].nan_to_num(0.0)
    failure, out = execute(subject, case, inputs, sizes, "exact", seed)
    if failure is not None and not out:
        return {}
    if nothing is not None:
        want = want.masked_fill(nothing[:, None], 0.0)
    return {"O": error_grid(output_as_bhnd(subject.recipe, out["O"])[place], want)}


def explained(
    way: Way, subject: Subject, deck: Sequence[Case], row: Mapping[str, Any], failure: Failure,
    read: bool,
) -> dict[str, Any]:  # fmt: skip
    """`explain` for the run of the deck whose row this is, as details of a verdict. `read`: the
    recipe was read from the spec, and says which rows keep no key."""
    for seed, case in enumerate(deck):
        if str(case) == row.get("case") and failure.counterexample:
            example, pictures = explain(way, subject, case, seed, failure, read)
            return {"counterexample": example} | ({"errors": pictures} if pictures else {})
    return {"case": row["case"]} if "case" in row else {}


def diagnosis(want: Tensor, got: Tensor, first: int = 0) -> str:
    """What the two rows of weights say, in one sentence."""
    if bool(got.isnan().any()):
        return "the target's weights in this row are NaN"
    kept, mine = want != 0, got != 0
    if bool(kept.any()) and not bool(mine.any()):
        return (
            "every weight of this row is 0: no key of it is visited and kept, or its sum or its "
            "accumulator is lost"
        )
    if bool((kept != mine).any()):
        extra = (mine & ~kept).nonzero().flatten() + first
        lost = (kept & ~mine).nonzero().flatten() + first
        words = []
        if len(extra):
            words.append(f"keeps {len(extra)} keys that the spec masks (first j={int(extra[0])})")
        if len(lost):
            words.append(f"masks {len(lost)} keys that the spec keeps (first j={int(lost[0])})")
        return "the mask or the tile schedule is wrong: in this row the target " + " and ".join(
            words
        )
    if not bool(kept.any()):
        return "this row keeps no key in the keys looked at"
    ratio = got[kept] / want[kept]
    spread = float((ratio - ratio[0]).abs().max())
    if spread <= CLOSE * abs(float(ratio[0])):
        if math.isclose(float(ratio[0]), 1.0, rel_tol=CLOSE):
            return (
                "the weights are right, so what is wrong comes after them: V's tiles, the "
                "accumulator's rescaling, or the epilogue"
            )
        return (
            f"every weight of this row is {float(ratio[0]):.6g} times the spec's: the scores are "
            "right, the normaliser is wrong"
        )
    return "the mask is right in this row, the scores (or how they become weights) are wrong"


def _weights(
    subject: Subject, case: Case, drawn: tuple[dict[str, Any], dict[str, int]], seed: int,
    at: Mapping[str, Any],
) -> tuple[Tensor, Tensor, int]:  # fmt: skip
    """The weights [Nq, keys] of the counterexample's batch and head for up to `MOST_KEYS` keys
    around the wrong one: the spec's, the target's, the first key."""
    inputs, sizes = drawn
    width = min(subject.columns["Dv"], sizes["Nk"])
    turns = min(-(-sizes["Nk"] // width), max(MOST_KEYS // width, 1))
    middle = max(int(at.get("j", 0)) // width - turns // 2, 0)
    first = min(middle * width, max(sizes["Nk"] - turns * width, 0))
    wants, gots, begin = [], [], first
    while begin < min(first + turns * width, sizes["Nk"]):
        start = min(begin, sizes["Nk"] - width)
        want, got = _column_weights(subject, case, inputs, sizes, seed, start, width)
        place = (int(at["b"]), int(at["h"]))
        wants.append(want[place][:, begin - start : width].nan_to_num(0.0))
        gots.append(got[place][:, begin - start : width])
        begin = start + width
    return torch.cat(wants, -1), torch.cat(gots, -1), first


def _column_weights(
    subject: Subject, case: Case, inputs: Mapping[str, Any], sizes: Mapping[str, int], seed: int,
    first: int, width: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The weights [B, Hq, Nq, Dv] of `width` keys from `first` on, by one-hot V."""
    v = next(i for i in subject.recipe.inputs if i.role == "v")
    hot = as_bhnd(v, torch.zeros_like(inputs[v.name]))
    for d in range(width):
        hot[:, :, first + d, d] = 1.0
    probe = dict(inputs) | {v.name: hot_like(v, hot, inputs[v.name])}
    spec = output_as_bhnd(subject.recipe, subject.function.wide(probe))
    failure, out = execute(subject, case, probe, sizes, "exact", seed)
    if failure is not None and not out:
        raise ValueError(failure.reason)
    return spec, output_as_bhnd(subject.recipe, out["O"])
