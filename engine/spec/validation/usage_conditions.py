"""The spec under the conditions of its use: kernels' head sizes, low precision, call after call;
and whole numbers that it counts in a low type, which holds them up to a bound only."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from engine.errors import SpecError, Where
from engine.spec.python.dimension_sizes import Domain
from engine.spec.python.load import load_function
from engine.spec.python.modes import DispatchMode, OnCpu, Widen
from engine.spec.python.program import Program
from engine.spec.readings.derived_inputs import derived_values
from engine.spec.readings.size_readings import random_inputs
from engine.spec.recipes.recipe import Recipe
from engine.spec.reference.oracle import (
    expected,
    output_as_bhnd,
    run_as_it_is,
    vmapped_mods,
    widened,
)
from engine.spec.tracing.trace import Lines
from engine.spec.validation.run_comparison import Misread, compare, dims_at, shown

MANY = 16  # distinct whole numbers: positions, not flags, buckets or one large constant
_LARGEST_COUNT = 2**24
_LOW_TYPES = (torch.bfloat16, torch.float16)


class Counting(DispatchMode):  # type: ignore[no-untyped-call]
    """Notes the lines that put many whole numbers into a low type, and which it rounds there."""

    def __init__(self, lines: Lines) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._lines = lines
        self.counted: set[int] = set()
        self.rounded: set[int] = set()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and out.dtype in _LOW_TYPES and out.numel() > MANY:
            self._note(func._schema.name.removeprefix("aten::"), args, out)
        return out

    def _note(self, name: str, args: tuple[Any, ...], out: torch.Tensor) -> None:
        if name == "_to_copy":
            exact = args[0].detach().double()
        elif name == "arange":
            start, step = (0, 1) if len(args) == 1 else (args[0], args[2] if len(args) > 2 else 1)
            exact = start + step * torch.arange(out.numel(), dtype=torch.float64)
        else:
            return
        line = self._lines.here()
        values = exact.unique()
        whole = (values == values.round()) & (values.abs() < _LARGEST_COUNT)
        if line is None or len(values) <= MANY or not bool(whole.all()):
            return
        self.counted.add(line)
        if not torch.equal(exact, out.double()):
            self.rounded.add(line)


HEAD_SIZES = ((64, 64), (96, 96), (128, 128), (192, 128), (192, 192), (256, 256))
"""(D, Dv) that attention kernels are built for."""
CALLS = 48
PATIENCE = 1.0  # seconds for all calls; a slow spec is called fewer times, twice at least
_TINY: Mapping[str, int] = {"B": 1, "Hq": 2, "Hkv": 1, "Nq": 3, "Nk": 5}
_LOW: Mapping[str, int] = {"B": 2, "Hq": 4, "Hkv": 2, "Nq": 24, "Nk": 31, "D": 16, "Dv": 12}
_LONG: Mapping[str, int] = {"B": 1, "Hq": 2, "Hkv": 1, "Nq": 290, "Nk": 300, "D": 4, "Dv": 4}
_TYPES = (torch.bfloat16, torch.float16, torch.float32)
_ROUNDOFF = 2**-8  # bfloat16's: a spec may cast to it in any type
_LEAST = 0.05  # of the output's norm: a distance that is never called another formula
_SLACK = 6.0


def check_head_sizes(
    program: Program, recipe: Recipe, domain: Domain, head_sizes: Sequence[tuple[int, int]] = ()
) -> None:
    """Compare at the head sizes of kernels. Raises `Misread`."""
    seen: set[tuple[int, ...]] = set()
    for d, dv in dict.fromkeys((*HEAD_SIZES, *head_sizes)):
        sizes = domain.within({**_TINY, "D": d, "Dv": dv})
        dims = tuple(dims_at(program, sizes).values())
        if dims in seen:
            continue
        seen.add(dims)
        try:
            compare(program, recipe, sizes, 1.0, 400 + d)
        except SpecError as error:
            if error.__cause__ is None:
                raise  # what the spec itself raises says that the head size is not its own


def check_types(program: Program, recipe: Recipe, domain: Domain) -> None:
    """Run the spec in bfloat16, float16 and float32, casts and all, and hold it against the recipe.

    What rounding alone does is estimated from the recipe, with every float input off by bfloat16's
    unit roundoff; a distance far past that, over the whole output, is another formula. A spec that
    does not run in a type on a CPU is not held against it. Raises `Misread`.
    """
    dims = dims_at(program, domain.within(_LOW))
    exact = random_inputs(program.tensors, dims, 500)
    low = {t.name for t in program.tensors if t.dtype == "T"}
    for dtype in _TYPES:
        inputs = {n: t.to(dtype) if n in low else _single(t) for n, t in exact.items()}
        try:
            theirs = output_as_bhnd(recipe, run_as_it_is(program, inputs))
        except SpecError:
            continue
        wide = {n: widened(t) for n, t in inputs.items()}
        ours = _output(program, recipe, wide)
        drawn = torch.Generator().manual_seed(501)
        noisy = {n: _off(t, drawn) for n, t in wide.items()}
        usable = torch.isfinite(theirs) & torch.isfinite(ours)
        gap = float((theirs.double() - ours)[usable].norm())
        noise = float((_output(program, recipe, noisy) - ours)[usable].norm())
        if gap > _SLACK * noise + _LEAST * float(ours[usable].norm()):
            counted, line = counted_in_low_types(program, domain), program.source.line
            raise Misread(
                f"in {str(dtype).removeprefix('torch.')} the spec computes something else than in "
                f"float64: at {shown(dims)} its output is {gap:.3g} away from the formula that was "
                f"read, where rounding explains {noise:.3g}{_why(counted)}",
                where=Where(str(program.source.path), counted[0] if counted else line),
                fix="count in int32 or float32, and cast what comes of it"
                if counted
                else "compute the same in every type, without branches on a dtype",
            )


def _why(counted: tuple[int, ...]) -> str:
    return "; positions are counted in it, past the whole numbers that it holds" if counted else ""


def _single(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.dtype.is_floating_point else tensor


def _off(tensor: torch.Tensor, drawn: torch.Generator) -> torch.Tensor:
    if not tensor.dtype.is_floating_point:
        return tensor
    return tensor * (
        1 + _ROUNDOFF * torch.randn(tensor.shape, generator=drawn, dtype=torch.float64)
    )


def _output(program: Program, recipe: Recipe, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """What the recipe gives, with rows that keep nothing as NaN: the spec may fill them."""
    ours = expected(recipe, {**inputs, **derived_values(program, recipe, inputs)})
    return ours.o.masked_fill(ours.empty[..., None], torch.nan)


def counted_in_low_types(program: Program, domain: Domain) -> tuple[int, ...]:
    """The lines whose positions bfloat16 rounds where there are more than it tells apart."""
    found: set[int] = set()
    for sizes in (_LOW, _LONG):
        seen = Counting(Lines(program.source.path))
        inputs = random_inputs(program.tensors, dims_at(program, domain.within(sizes)), 510)
        low = {t.name for t in program.tensors if t.dtype == "T"}
        given = {n: t.bfloat16() if n in low else _single(t) for n, t in inputs.items()}
        try:
            with seen:
                run_as_it_is(program, given)
        except SpecError:
            return ()  # not the spec's sizes, or no type of a CPU's
        found = seen.rounded
        if not seen.counted:
            break
    return tuple(sorted(found))


def check_calls(program: Program, domain: Domain) -> None:
    """Call one loaded module again and again: its output must stay. Raises `Misread`."""
    dims = dims_at(program, domain.within({**_TINY, "D": 4, "Dv": 4}))
    inputs = {n: widened(t) for n, t in random_inputs(program.tensors, dims, 600).items()}
    function = load_function(program.source)
    deadline = time.monotonic() + PATIENCE
    first: torch.Tensor | None = None
    for call in range(1, CALLS + 1):
        given = {n: t.clone() for n, t in inputs.items()}
        try:
            with OnCpu(), Widen():  # type: ignore[no-untyped-call]
                out = program.call(function, given, vmapped_mods)
        except SpecError:
            if first is None:
                return  # not the spec's sizes
            raise
        first = out.clone() if first is None else first
        if out.shape != first.shape or not torch.allclose(
            out, first, rtol=1e-12, atol=1e-12, equal_nan=True
        ):
            raise Misread(
                f"call {call} of the spec gives another output than call 1 for the same inputs",
                where=Where(str(program.source.path), program.source.line),
                fix="keep nothing between calls that changes the output",
            )
        if call > 1 and time.monotonic() > deadline:
            return
