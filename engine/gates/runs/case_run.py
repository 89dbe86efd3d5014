"""One run of a module on a case of the deck: its inputs, and its outputs in the spec's layout.

Runs in the torch child only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from engine.cuir.execute.compiled.compiler import kept_program
from engine.cuir.execute.compiled.program import Limits, Schedule
from engine.cuir.execute.schedules.run import Outcome, run_program
from engine.cuir.nodes import Name, free_names, names_in
from engine.cuir.scalar import Mode
from engine.gates.analysis.size_comparisons import SIZES
from engine.gates.analysis.tile_sizes import tiles_of
from engine.gates.deck import UNKNOWN, Case
from engine.gates.runs.subject import Failure, Report, Subject, is_element, op_text
from engine.gates.runs.tile_edges import APART, ends_apart
from engine.spec import Input, Recipe
from engine.spec.decks.deck_inputs import Kind, extent, make_inputs, with_own_sizes
from engine.spec.decks.extreme_biases import PATTERNS, at_extremes
from engine.spec.reference.oracle import as_bhnd, output_as_bhnd
from engine.transfer.fill import fill_arguments, unpermuted
from engine.transfer.workspace import launch_constants

REMOVED = 130  # keys that a bias of -inf takes in one go: more than any tile has
# Findings about values: the comparison with the spec says more about them.
NUMERIC = frozenset({"nan_output", "unwritten_output"})

Row = dict[str, Any]  # what one run measured
Run = Callable[[], tuple[Failure | None, Row]]
Compare = Callable[[Mapping[str, Tensor]], tuple[Failure | None, Row]]  # outputs by role


@dataclass(frozen=True, slots=True)
class Way:
    """How a subject is judged: by its recipe, or by the spec's own function alone.

    `draw` makes a case's inputs and sizes; `compared` what exact outputs are compared with, or why
    the spec does not run there; `under_mask` plants NaN where nothing is kept; `locate` finds the
    first wrong op of a failure; `lacking` says why runs without one are no pass.
    """

    deck: Callable[[Subject], list[Case]]
    draw: Callable[[Subject, Case, int], tuple[dict[str, Any], dict[str, int]]]
    compared: Callable[[Subject, Case, Mapping[str, Any]], Compare | str]
    typed: Callable[[Subject, Case, int], tuple[Failure | None, Row]]
    probe: Callable[[Subject, Case, int], tuple[Failure | None, Row]]
    under_mask: Callable[[Subject, Case, int], tuple[Failure | None, Row]]
    locate: Callable[[Subject, Sequence[Case], int, Failure], Failure]
    lacking: Callable[[Sequence[Row]], Failure | None]


def run_deck(
    way: Way, subject: Subject, deck: Sequence[Case], report: Report, first: int = 0
) -> tuple[Failure | None, list[Row]]:
    """The first failure of the deck's cases from `first` on (or None), and what each run
    measured."""
    done: list[Row] = []
    report(f"{len(deck) - first} cases to run")
    for number in range(first, len(deck)):
        case = deck[number]
        report(f"case {number + 1} of {len(deck)}: {case}")
        runs: list[Run] = []
        if "exact" in case.modes:
            runs.append(lambda: exact(way, subject, case, number))  # noqa: B023
        if "typed" in case.modes:
            runs.append(lambda: way.typed(subject, case, number))  # noqa: B023
        if "under mask" in case.modes:
            runs.append(lambda: way.under_mask(subject, case, number))  # noqa: B023
        if case.probe_keep:
            runs.append(lambda: way.probe(subject, case, number))  # noqa: B023
        for run in runs:
            failure, row = run()
            done.append(row)
            if failure is not None:
                report("finding the first wrong op")
                return way.locate(subject, deck, number, failure), done
    return None, done


def exact(way: Way, subject: Subject, case: Case, seed: int) -> tuple[Failure | None, Row]:
    """Every value float64: O within 1e-10 of each row's largest magnitude, and LSE."""
    row: Row = {"case": str(case), "mode": "exact"}
    inputs, sizes = way.draw(subject, case, seed)
    compare = way.compared(subject, case, inputs)
    if isinstance(compare, str):
        return None, row | {"skipped": compare}
    found, out = execute(subject, case, inputs, sizes, "exact", seed)
    if found is not None and not out:
        return found, row
    failure, numbers = compare(out)
    if found is not None and failure is not None:
        # The executor says where NaN was written; the comparison says for which row.
        failure = replace(failure, op=found.op)
    return failure or found, row | numbers


def make_case(subject: Subject, case: Case, seed: int) -> tuple[dict[str, Any], dict[str, int]]:
    sizes = with_own_sizes(subject.recipe.inputs, case.sizes | subject.columns)
    turn = seed if case.turn is None else case.turn
    own = case.values in PATTERNS or case.values == APART
    kind: Kind = "random" if own else case.values  # type: ignore[assignment]
    inputs = make_inputs(subject.recipe, sizes, seed, kind, turn=turn)
    for scalar in subject.binding.scalars:
        if scalar.value != Name(scalar.field):  # what multiplies q.k: callers promise it positive
            for name in free_names(scalar.value) & inputs.keys():
                inputs[name] = inputs[name].abs()
    if case.values == "bias-inf":
        _remove_tiles(subject.recipe, inputs)
    elif case.values == APART:
        tiles = tiles_of(subject.module) or UNKNOWN
        inputs = ends_apart(subject.recipe, inputs, sizes, tiles, turn)
    elif case.values in PATTERNS:
        inputs = at_extremes(subject.recipe, inputs, case.values, turn, subject.dtype)
    sizes |= _named_sizes(subject.recipe, inputs)
    if case.Nq and case.Nk:
        inputs |= subject.function.derived(subject.recipe, inputs)
    else:
        inputs |= _nothing_derived(subject.recipe, sizes)
    return inputs, sizes


def removable(recipe: Recipe) -> frozenset[str]:
    """Float inputs with a value per key that a softmax's score reads: these may be -inf."""
    if recipe.weight is not None:
        return frozenset()
    read = names_in(recipe.score)
    return frozenset(
        i.name
        for i in recipe.extra()
        if i.derive is None and i.dtype in ("T", "f32", "f16", "bf16")
        and i.name in read and len(i.dims) >= 2 and "Nk" in i.dims
    )  # fmt: skip


def with_logits(subject: Subject, inputs: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """The inputs with logits of another size: q times `factor`, and what a softmax's score adds per
    key likewise."""
    names = {i.name for i in subject.recipe.inputs if i.role == "q"} | removable(subject.recipe)
    return {n: t * factor if n in names else t for n, t in inputs.items()}


def _remove_tiles(recipe: Recipe, inputs: Mapping[str, Any]) -> None:
    """-inf over whole tiles of keys: the first ones of some rows, the last ones of others."""
    for item in recipe.inputs:
        if item.name in removable(recipe):
            dims = list(item.dims)
            bias = inputs[item.name].movedim(dims.index("Nk"), -1)
            dims.append(dims.pop(dims.index("Nk")))
            if "Nq" in dims:
                bias = bias.movedim(dims.index("Nq"), -2)
                bias[..., :20, :REMOVED] = -math.inf
                bias[..., 20:40, -REMOVED:] = -math.inf
            else:
                bias[..., :REMOVED] = -math.inf


def _nothing_derived(recipe: Recipe, sizes: Mapping[str, int]) -> dict[str, Tensor]:
    """Tables that no pair of rows will read: specs need not build them for empty sizes."""
    kinds = {"i32": torch.int64, "i64": torch.int64, "bool": torch.bool}
    return {
        i.name: torch.zeros(
            [extent(d, sizes) for d in i.dims], dtype=kinds.get(i.dtype, torch.float64)
        )
        for i in recipe.inputs
        if i.derive is not None
    }


def _named_sizes(recipe: Recipe, inputs: Mapping[str, Any]) -> dict[str, int]:
    """Every dimension's size, read off the inputs."""
    out: dict[str, int] = {}
    for item in recipe.inputs:
        if item.name in inputs and isinstance(inputs[item.name], Tensor):
            out |= dict(zip(item.dims, inputs[item.name].shape, strict=True))
    return {name: size for name, size in out.items() if not name.isdigit()}


def run_module(
    subject: Subject, case: Case, inputs: Mapping[str, Any], sizes: Mapping[str, int], mode: Mode,
    schedule: Schedule, left: Tensor | None = None,
) -> Outcome:  # fmt: skip
    """One run on the case's multiprocessors. `left` is what an earlier run on the same inputs left
    in the workspace (see `workspace_of`), for one that plans nothing anew."""
    kind = torch.float64 if mode == "exact" else subject.dtype
    lse = torch.float64 if mode == "exact" else torch.float32
    given = {
        n: t.to(kind) if isinstance(t, Tensor) and is_element(subject.recipe, n) else t
        for n, t in inputs.items()
    }
    known = {**launch_constants(subject.module, subject.binding), **sizes}
    arguments = fill_arguments(subject.binding, given, known, kind, lse, case.slots)
    space, fields = subject.binding.workspace, dict(arguments.fields)
    if space is not None and left is not None:
        fields |= {space.field: left, space.planned: 1}
    watch = subject.watch if mode == "exact" else None
    if watch is not None:
        watch.rows, watch.keys = sizes["Nq"], sizes["Nk"]
    outcome = run_program(
        subject.module, fields, mode, schedule, Limits(sm_count=case.processors),
        # A caller's workspace holds anything: a word that no kernel wrote may not be read.
        unfilled=(
            *(() if space is None or left is not None else (space.field,)),
            *(made.field for made in subject.binding.scratch),
        ),
        compiler=kept_program if watch is None else watch.compiler,
    )  # fmt: skip
    if watch is not None:
        watch.finished(outcome.coverage)
    return outcome


def workspace_of(subject: Subject, outcome: Outcome) -> Tensor | None:
    """What a run left in the workspace; None where there is none."""
    space = subject.binding.workspace
    return None if space is None else outcome.outputs.get(space.field)


def execute(
    subject: Subject, case: Case, inputs: Mapping[str, Any], sizes: Mapping[str, int], mode: Mode,
    seed: int, *, same_lists: bool = False,
) -> tuple[Failure | None, dict[str, Tensor]]:  # fmt: skip
    """The module's outputs in the spec's layout ("O", "LSE"), or why it does not run.

    `same_lists`: the latest exact run of these sizes made its lists of tiles of the same inputs.
    """
    at = (*(sizes[n] for n in SIZES), seed)
    kept = same_lists or (mode == "typed" and subject.lists_are_whole)
    left = subject.left.get(at) if kept else None
    outcome = run_module(subject, case, inputs, sizes, mode, Schedule(seed=seed), left)
    made = workspace_of(subject, outcome) if mode == "exact" else None
    if made is not None:
        subject.left[at] = made
    return found_in(subject, outcome)


def found_in(subject: Subject, outcome: Outcome) -> tuple[Failure | None, dict[str, Tensor]]:
    """A run's outputs, or why there are none."""
    failure: Failure | None = None
    if outcome.findings:
        first = next((f for f in outcome.findings if f.kind not in NUMERIC), outcome.findings[0])
        failure = Failure(f"{first.kind}: {first.message}", op=op_text(first.path))
        if first.kind not in NUMERIC:
            return failure, {}
    elif outcome.status != "ran":
        return Failure(outcome.reason or outcome.status, op=op_text(outcome.stopped_at or ())), {}
    unwritten = [t.field for t in subject.binding.tensors
                 if t.output and t.field not in outcome.outputs]  # fmt: skip
    if unwritten:
        return Failure(f"nothing writes args.{unwritten[0]}"), {}
    return failure, outputs_of(subject, outcome)


def outputs_of(subject: Subject, outcome: Outcome) -> dict[str, Tensor]:
    """A run's outputs in the spec's layout, by role."""
    return {
        item.source: unpermuted(outcome.outputs[item.field], item)
        for item in subject.binding.tensors
        if item.output
    }


def weights_of(
    subject: Subject, case: Case, inputs: Mapping[str, Any], sizes: Mapping[str, int], seed: int
) -> tuple[Failure | None, Tensor | None]:
    """[B, Hq, Nq, Nk]: every weight of the target, from one-hot V, Dv keys at a time."""
    v = next(i for i in subject.recipe.inputs if i.role == "v")
    width = subject.columns["Dv"]
    parts: list[Tensor] = []
    # V has no part in the lists of tiles: those of the exact run are what a caller has who planned.
    left = subject.left.get((*(sizes[n] for n in SIZES), seed))
    for first in range(0, sizes["Nk"], width):
        columns = min(width, sizes["Nk"] - first)
        hot = as_bhnd(v, torch.zeros_like(inputs[v.name]))
        for d in range(columns):
            hot[:, :, first + d, d] = 1.0
        probe = dict(inputs) | {v.name: hot_like(v, hot, inputs[v.name])}
        schedule = Schedule(seed=seed)
        outcome = run_module(subject, case, probe, sizes, "exact", schedule, left)
        failure, out = found_in(subject, outcome)
        if failure is not None:
            return failure, None
        left = workspace_of(subject, outcome)
        parts.append(output_as_bhnd(subject.recipe, out["O"])[..., :columns])
    return None, torch.cat(parts, -1)


def hot_like(item: Input, hot: Tensor, like: Tensor) -> Tensor:
    """`hot` ([B, H, N, D], a view of a tensor in the spec's layout) back in that layout."""
    out = torch.zeros_like(like)
    as_bhnd(item, out).copy_(hot)
    return out
