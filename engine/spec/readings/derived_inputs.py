"""Derived inputs: tables that a spec builds in ways that no expression says.

ALiBi slopes for any number of heads come from a Python loop, document ids from a cumulative sum.
Such a table stays an input of the kernel; its values come from running the spec's own code again at
the sizes in hand. Only what does not depend on q, k and v can be a table, so those carry shapes
without values, and the run stops as soon as every table is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from engine.errors import SpecError
from engine.scalar_algebra.kinds import Kind
from engine.spec.python.load import surroundings
from engine.spec.python.program import Program, broadcast_mods, program_of
from engine.spec.python.spec_file import read_source
from engine.spec.recipes.recipe import Recipe
from engine.spec.reference.oracle import widened
from engine.spec.tracing.folding import Tables, tables_of
from engine.spec.tracing.trace import AllCaptured, AtenMode, PythonMode, Trace, kind_of_dtype


def derive_inputs(
    path: Path,
    recipe: Recipe,
    inputs: Mapping[str, torch.Tensor],
    options: Mapping[str, object] | None = None,
) -> dict[str, torch.Tensor]:
    """The values of `recipe`'s derived inputs for these inputs, float64, int64 or bool.

    Of q, k and v only the shapes count. Runs the user's code: call it in a child process only.
    Raises `SpecError` for a table that is not built at these sizes.
    """
    if all(item.derive is None for item in recipe.inputs):
        return {}
    source = read_source(Path(path), options or {})
    program = program_of(source)
    with surroundings(source):
        return derived_values(program, recipe, inputs)


def derived_values(
    program: Program, recipe: Recipe, inputs: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """`derive_inputs` inside `surroundings`."""
    wanted = {i.derive: i.name for i in recipe.inputs if i.derive is not None}
    if not wanted:
        return {}
    plain = {i.name for i in recipe.inputs if i.role != "extra"}
    given = {
        t.name: widened(inputs[t.name]).to("meta") if t.name in plain else widened(inputs[t.name])
        for t in program.tensors
    }
    kinds: dict[str, Kind] = {name: kind_of_dtype(t.dtype) for name, t in given.items()}
    tables = next((t for t in map(tables_of, wanted) if t is not Tables.FORMULAS), Tables.FORMULAS)
    trace = Trace(program.source.path, kinds, frozenset(wanted), tables, frozenset(plain))
    for name, tensor in given.items():
        trace.input(name, tensor)
    try:
        with PythonMode(trace), AtenMode(trace):
            program.run(given, broadcast_mods)
    except AllCaptured:
        pass
    if len(trace.captured) != len(wanted):
        lost = next(name for key, name in wanted.items() if key not in trace.captured)
        raise _lost(program, lost)
    return {wanted[key]: value for key, value in trace.captured.items()}


def check_narrow(program: Program, tables: Mapping[str, torch.Tensor]) -> None:
    """Raises `SpecError` for a table whose integers 32 bits, which kernels read, do not hold."""
    for name, value in tables.items():
        if value.dtype != torch.int64 or not value.numel():
            continue
        low, high = int(value.min()), int(value.max())
        if low < -(2**31) or high >= 2**31:
            raise program.source.error(
                f"the table {name} holds integers from {low} to {high}; kernels read 32 bits",
                program.source.line, "number them from 0 on",
            )  # fmt: skip


def _lost(program: Program, name: str) -> SpecError:
    return program.source.error(
        f"the spec does not build the table {name} again at these sizes", program.source.line,
        "build it on every call, in the same way at every size",
    )  # fmt: skip
