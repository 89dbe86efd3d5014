"""What the cost model says of a kernel, a CuIR text or a session, for commands and the app."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.cost.card import Card
from engine.cost.model import Prediction, predict
from engine.cuir.nodes import Module
from engine.cuir.parser import parse_module
from engine.files import read_text
from engine.gates.g3_source.speed import arguments, bound_numbers
from engine.service.executed.opened import work_of
from engine.service.session.content import BINDING, TARGET
from engine.service.session.workbench import Bench, lift_any
from engine.spec.recipes.recipe import Recipe
from engine.transfer.binding import Binding
from engine.types import Gate, Stage
from engine.worker.problems.problem_sizes import Case
from sessions.state import SessionState


def module_of_file(path: Path) -> Module:
    """The module in a `.cuir` file. Raises `CuirError` or `InputError` naming the file."""
    text = read_text(path, "give a CuIR file, as `cubridge lift KERNEL` shows one")
    return parse_module(text, str(path))


def module_of_kernel(name: str, arch: str | None, specialisation: Mapping[str, str]) -> Module:
    """A kernel's lifted module."""
    return lift_any(name, arch, specialisation).module


def module_of_session(
    bench: Bench, session: str
) -> tuple[Module, SessionState, Recipe | None, Binding | None]:
    """A session's target, or its lifted module where there is no target yet; the session, and what
    its spec asks for and what fills its fields, where these are known."""
    work = work_of(bench, bench.store.load(session))
    known = work.state.stage(Stage.TARGET).artifacts
    binding = work.binding if BINDING in known else None
    module = work.target if TARGET in known else work.lifted.module
    return module, work.state, work.recipe, binding


def tiles(state: SessionState) -> Mapping[str, Any] | None:
    """A case that G2 ran, the key tiles visited in it and how many of them hold no kept pair.

    See `engine.gates.schedules.tile_visits.Visits`. None where G2 has not passed on what the
    session holds, or counts none: without a mask, and where the kernel lists its tiles from the
    inputs.
    """
    verdict = state.verdict(Gate.G2)
    return verdict.details.get("tiles") if verdict is not None and verdict.passed else None


def tiles_words(state: SessionState) -> str:
    """`tiles` as a line."""
    verdict, found = state.verdict(Gate.G2), tiles(state)
    if found is not None:
        return (
            f"counted by G2: {found['visited']:,} key tiles visited at {found['case']}, "
            f"{found['in_vain']:,} of them hold no kept pair"
        )
    if verdict is None or not verdict.passed:
        return "visited key tiles are not counted: G2 has not passed"
    return "visited key tiles are not counted: no mask, or tile lists made from the inputs"


def costs(
    module: Module,
    cases: Sequence[Case],
    card: Card,
    *,
    kept: float | None = None,
    recipe: Recipe | None = None,
    binding: Binding | None = None,
    on_arch: str | None = None,
) -> tuple[Prediction, ...]:
    """A prediction for each shape. `kept` is the share of pairs that the mask keeps, in (0, 1]:
    with it TFLOP/s count the kept pairs, else those of all visited tiles. `recipe` and `binding`
    are the session's, where there is one."""
    out = []
    for case in cases:
        flops = None
        sizes = arguments(case, module, bound_numbers(case, module, recipe, binding))
        if kept is not None:
            whole = predict(module, sizes, card, on_arch=on_arch)
            pairs = case.B * case.Hq * case.Nq * case.Nk
            flops = kept * pairs * whole.main.flops_pair
        out.append(predict(module, sizes, card, flops=flops, on_arch=on_arch))
    return tuple(out)
