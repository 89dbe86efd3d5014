"""One run of the spec's own function held against its recipe, element by element."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from engine.cuir.nodes import Compare
from engine.errors import SpecError, Where
from engine.scalar_algebra.evaluate import evaluate
from engine.spec.python.dimension_sizes import dimension_values, slots
from engine.spec.python.modes import Widen
from engine.spec.python.program import Program
from engine.spec.python.signature import fixed_sizes
from engine.spec.python.size_values import SizesByName
from engine.spec.readings.derived_inputs import check_narrow, derived_values
from engine.spec.readings.size_readings import random_inputs
from engine.spec.recipes.recipe import EmptyRows, Recipe
from engine.spec.reference.oracle import (
    Expected,
    canonical_layout,
    expected,
    output_as_bhnd,
    sizes_of,
    vmapped_mods,
    wide_outputs,
    widened,
)
from engine.spec.reference.row_sums import in_order
from engine.spec.validation.python_comparisons import Watch

TOLERANCE = 1e-10  # of the largest magnitude in the row


class Misread(SpecError):
    """The recipe that was read does not compute what the spec computes."""


def dims_at(program: Program, sizes: Mapping[str, int]) -> dict[str, int]:
    """The value of every dimension name of the spec."""
    slot = slots(program.tensors)
    return dimension_values(list(slot), slot, sizes)


def compare(
    program: Program,
    recipe: Recipe,
    sizes: Mapping[str, int],
    peak: float,
    seed: int,
    watch: Watch | None = None,
    most: int = 3,
) -> set[EmptyRows]:
    """How the spec fills rows that keep no key, at `sizes`; `watch` notes what it compares, and
    integers are drawn below `most`.

    Raises `Misread` at the first difference, `SpecError` for what the spec itself raises and for
    tables that a kernel cannot read.
    """
    dims = dims_at(program, sizes)
    inputs = random_inputs(program.tensors, dims, seed, most)
    q = next(i.name for i in recipe.inputs if i.role == "q")
    inputs[q] = inputs[q] * peak
    if not _divides(recipe, inputs):
        return set()
    given = {t.name: widened(inputs[t.name]).clone() for t in program.tensors}
    out, second = _run(program, given, dims, watch)
    theirs = output_as_bhnd(recipe, out)
    _check_unwritten(program, inputs, given)
    tables = derived_values(program, recipe, inputs)
    check_narrow(program, tables)
    ours = expected(recipe, {**inputs, **tables})
    if theirs.shape != ours.o.shape:
        raise differs(program, f"the output has the shape {tuple(theirs.shape)}", dims)
    hold(program, theirs, ours, dims)
    if recipe.lse is not None:
        hold_lse(program, second, recipe, ours, dims)
    return _fills(theirs, ours, canonical_layout(recipe, "v", inputs), recipe)


def _divides(recipe: Recipe, inputs: Mapping[str, torch.Tensor]) -> bool:
    """Whether no divisor of the recipe is zero at the sizes of these inputs."""
    roles = (canonical_layout(recipe, role, inputs) for role in ("q", "k", "v"))
    known = sizes_of(*roles) | fixed_sizes(recipe.constraints)
    return all(
        bool(evaluate(c, dict(known)))
        for c in recipe.constraints
        if isinstance(c, Compare) and c.op == "!="
    )


def _run(
    program: Program,
    inputs: Mapping[str, torch.Tensor],
    dims: Mapping[str, int],
    watch: Watch | None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    if watch is None:
        return wide_outputs(program, inputs)
    before = {n: t.clone() for n, t in inputs.items()}
    try:
        named = SizesByName(program.tensors, inputs, dims, watch)
        with named, Widen():  # type: ignore[no-untyped-call]
            return program.outputs(inputs, vmapped_mods)
    except SpecError:
        if watch.forced:
            raise
        return wide_outputs(program, before)  # a library may refuse integers that are not plain


def _check_unwritten(
    program: Program, before: Mapping[str, torch.Tensor], after: Mapping[str, torch.Tensor]
) -> None:
    for name, tensor in after.items():
        if not torch.equal(tensor, widened(before[name])):
            raise SpecError(
                f"the spec writes into its input {name}",
                where=Where(str(program.source.path), program.source.line),
                fix=f"compute a new tensor: {name} = {name} * 2, not {name} *= 2 or {name}.mul_(2)",
            )


def hold(program: Program, theirs: torch.Tensor, ours: Expected, dims: Mapping[str, int]) -> None:
    """Raises `Misread` where [B, Hq, Nq, Dv] of the spec and of its recipe differ."""
    kept = ~ours.empty[..., None]
    both = theirs.isnan() & ours.o.isnan() & kept
    if bool(both.any()):
        b, h, i, d = (int(n) for n in both.nonzero()[0])
        raise SpecError(
            f"the spec gives NaN for ordinary inputs, so no kernel can be held against it: at "
            f"{shown(dims)}, row {i} of head {h}",
            where=Where(str(program.source.path), program.source.line),
            fix="look for a division by zero, inf - inf, or a root of a negative number",
        )
    scale = ours.o.abs().amax(-1, keepdim=True).clamp(min=1e-300)
    wrong = (((theirs - ours.o).abs() > TOLERANCE * scale) | theirs.isnan()) & kept
    if bool(wrong.any()):
        b, h, i, d = (int(n) for n in wrong.nonzero()[0])
        here, read = _told_apart(float(theirs[b, h, i, d]), float(ours.o[b, h, i, d]))
        raise differs(program, f"row {i} of head {h} is {here} in the spec, {read} as read", dims)


def hold_lse(
    program: Program,
    second: torch.Tensor | None,
    recipe: Recipe,
    ours: Expected,
    dims: Mapping[str, int],
) -> None:
    """Raises `Misread` where the spec's second output is not its recipe's LSE."""
    seen = None if second is None else in_order(second, recipe.lse_dims)
    if seen is None or ours.lse is None or seen.shape != ours.lse.shape:
        raise differs(program, "the second output is no log-sum-exp of its rows", dims)
    error = (seen - ours.lse).abs() > TOLERANCE * ours.lse.abs().clamp(min=1.0)
    wrong = (error | seen.isnan()) & ~ours.empty
    if bool(wrong.any()):
        b, h, i = (int(n) for n in wrong.nonzero()[0])
        here, read = _told_apart(float(seen[b, h, i]), float(ours.lse[b, h, i]))
        what = f"the second output at row {i} of head {h} is {here} in the spec, {read} as read"
        raise differs(program, what, dims)


def _told_apart(a: float, b: float) -> tuple[str, str]:
    """Two numbers with as many digits as show that they differ."""
    digits = next((n for n in (6, 9, 12) if f"{a:.{n}g}" != f"{b:.{n}g}"), 17)
    return f"{a:.{digits}g}", f"{b:.{digits}g}"


def _fills(theirs: torch.Tensor, ours: Expected, v: torch.Tensor, recipe: Recipe) -> set[EmptyRows]:
    """How the spec fills the rows that keep nothing."""
    rows = ours.empty
    if not bool(rows.any()):
        return set()
    got = theirs[rows]
    if bool(got.isnan().all()):
        return {"nan"}
    if bool((got == 0).all()):
        return {"zero"}
    group = theirs.shape[1] // v.shape[1]
    mean = v.to(torch.float64).mean(-2, keepdim=True).repeat_interleave(group, 1).expand_as(theirs)
    if bool(((got - mean[rows]).abs() <= 1e-9).all()):
        return {"mean"}
    return {"spec-defined"}


def shown(dims: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {value}" for name, value in dims.items())


def differs(program: Program, what: str, dims: Mapping[str, int]) -> Misread:
    return Misread(
        f"the rules misread this spec: at {shown(dims)}, {what}",
        where=Where(str(program.source.path), program.source.line),
        fix="write the variant more plainly, or use --transfer llm",
    )
