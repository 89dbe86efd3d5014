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
from engine.spec.reference.oracle import as_bhnd, output_as_bhnd

SHOWN = 12
CLOSE = 1e-9


def explain(way: Way, subject: Subject, case: Case, seed: int, failure: Failure) -> dict[str, Any]:
    """The counterexample with weights beside it; the counterexample alone where none can be had."""
    example = dict(failure.counterexample or {})
    if not {"b", "h", "i"} <= set(example) or not case.Nk:
        return example
    example["case"] = str(case)
    try:
        want, got, first = _weights(way, subject, case, seed, example)
    except (CuBridgeError, ValueError, RuntimeError, KeyError):
        return example
    keys = [
        {"j": first + j, "expected": float(want[j]), "got": float(got[j])}
        for j in range(len(want))
        if not math.isclose(float(want[j]), float(got[j]), rel_tol=CLOSE, abs_tol=1e-12)
    ]
    example["wrong_keys"] = len(keys)
    example["keys"] = keys[:SHOWN]
    example["diagnosis"] = diagnosis(want, got, first)
    return example


def explained(
    way: Way, subject: Subject, deck: Sequence[Case], row: Mapping[str, Any], failure: Failure
) -> dict[str, Any]:
    """`explain` for the run of the deck whose row this is, as details of a verdict."""
    for seed, case in enumerate(deck):
        if str(case) == row.get("case") and failure.counterexample:
            return {"counterexample": explain(way, subject, case, seed, failure)}
    return {"case": row["case"]} if "case" in row else {}


def diagnosis(want: Tensor, got: Tensor, first: int = 0) -> str:
    """What the two rows of weights say, in one sentence."""
    if bool(got.isnan().any()):
        return "the target's weights in this row are NaN"
    kept, mine = want != 0, got != 0
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
    way: Way, subject: Subject, case: Case, seed: int, at: Mapping[str, Any]
) -> tuple[Tensor, Tensor, int]:
    """The row's weights for up to Dv keys around the wrong one: spec, target, first key."""
    inputs, sizes = way.draw(subject, case, seed)
    v = next(i for i in subject.recipe.inputs if i.role == "v")
    width = min(subject.columns["Dv"], sizes["Nk"])
    first = min(int(at.get("j", 0)) // width * width, sizes["Nk"] - width)
    hot = as_bhnd(v, torch.zeros_like(inputs[v.name]))
    for d in range(width):
        hot[:, :, first + d, d] = 1.0
    probe = dict(inputs) | {v.name: hot_like(v, hot, inputs[v.name])}
    spec = output_as_bhnd(subject.recipe, subject.function.wide(probe))
    failure, out = execute(subject, probe, sizes, "exact", seed)
    if failure is not None and not out:
        raise ValueError(failure.reason)
    place = (int(at["b"]), int(at["h"]), int(at["i"]))
    got = output_as_bhnd(subject.recipe, out["O"])
    return spec[place][:width].nan_to_num(0.0), got[place][:width], first
