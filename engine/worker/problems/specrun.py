"""The spec on the GPU machine: its inputs, its float64 values, its low-precision self.

The oracle is the person's own function. The recipe, proven equal to it when the spec was read and
held against it again here, gives what the function does not return: LSE, and which pairs are kept.
Where no recipe could be read the function judges alone: a row that it gives as NaN has no key, its
weights are what it makes of one-hot V, and LSE is compared with nothing.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.cuir.scalar import evaluate
from engine.errors import SpecError
from engine.spec.decks.deck_inputs import (
    extent,
    in_range,
    is_length,
    lengths,
    ways_of,
    with_own_sizes,
)
from engine.spec.decks.extreme_biases import PATTERNS, at_extremes, masks_as_floats
from engine.spec.decks.integer_draws import FLAGS, in_turn
from engine.spec.decks.logit_levels import EVEN, LEVEL, at_levels
from engine.spec.python.load import load_function, surroundings
from engine.spec.python.modes import Widen
from engine.spec.python.program import (
    Program,
    broadcast_mods,
    program_of,
    size_arguments,
    sorted_mods,
)
from engine.spec.python.signature import Asked, recipe_of, signature_of
from engine.spec.python.spec_file import read_source
from engine.spec.python.without_recipe import (
    DRAWS,
    documents,
    integers_of,
    integers_redrawn,
    saturates,
)
from engine.spec.readings.derived_inputs import derive_inputs
from engine.spec.recipes.recipe import Input, places_of
from engine.spec.reference.oracle import (
    Expected,
    canonical_layout,
    expected,
    output_as_bhnd,
    rounding_of_lse,
    run_wide,
)
from engine.worker.problems.problem_sizes import FLAT, PEAKED, SHIFTED, Case

DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
GAIN = {FLAT: (1.0, 0.0), PEAKED: (8.0, 0.0), SHIFTED: (3.0, 3.0)}
UNUSUAL = frozenset({LEVEL, EVEN, *PATTERNS})  # values that a spec need not be made for
SMALL = 2.0**-7
DOCUMENTS = 5
TRIED = 1 << 25  # pairs up to which the CPU tries whether the spec runs with what was drawn


@dataclass(frozen=True)
class Shapes:
    """Sizes of one call by dimension name: B, Hq, Hkv, Nq, Nk, D, Dv and any other."""

    values: Mapping[str, int]

    def of(self, dims: tuple[str, ...]) -> list[int]:
        return [extent(d, self.values) for d in dims]


@dataclass(frozen=True)
class Outcome:
    """What the outputs of one call are compared with; rows are [B, Hq, Nq].

    `empty` are the rows that must give O = 0, and LSE = -inf or a sink where there is an `lse` to
    compare with. `read` is what the recipe says, None without one; `exact` is the function's own O
    where it had to be run to know the empty rows.
    """

    empty: Tensor
    lse: Tensor | None
    read: Expected | None
    exact: Tensor | None


class SpecRun:
    """A spec and what is known of it, to be run at chosen sizes on one device.

    `recipe` is None where none could be read; the `signature` is always there.
    """

    def __init__(
        self, path: Path, options: Mapping[str, Any], asked: Asked, device: torch.device
    ) -> None:
        self.path = path
        self.options = dict(options)
        self.recipe = recipe_of(asked)
        self.signature = signature_of(asked)
        self.device = device
        self.source = read_source(path, self.options)
        self.program: Program = program_of(self.source)
        self.role: dict[str, Input] = {
            i.role: i for i in self.signature.inputs if i.role != "extra"
        }
        self.oracle_device = device

    # --- sizes and inputs --------------------------------------------------------------------

    def fits(self, sizes: Mapping[str, int]) -> bool:
        """Whether the sizes obey what the spec's dimension names demand (such as Nq == Nk)."""
        return all(bool(evaluate(c, dict(sizes))) for c in self.signature.constraints)

    def sizes(self, case: Case, d: int, dv: int) -> dict[str, int]:
        """Every dimension's size; names of the spec's own get one of their own."""
        return with_own_sizes(self.signature.inputs, {**case.sizes, "D": d, "Dv": dv})

    def make_inputs(
        self, case: Case, sizes: Mapping[str, int], dtype: torch.dtype
    ) -> dict[str, Tensor]:
        """The spec's tensors and derived ones by name; q, k, v in `dtype`, seeded by the case."""
        generator = torch.Generator(self.device).manual_seed(case.seed)
        gain, shift = GAIN.get(case.values, GAIN[FLAT])
        out: dict[str, Tensor] = {}
        for item in self.signature.inputs:
            if item.derive is not None:
                continue
            shape = Shapes(sizes).of(item.dims)
            value = self._draw(item, shape, generator, case.turn, sizes)
            if item.role == "q":
                value = value * gain
            elif item.role == "v":
                value = value + shift
            value = at_levels(item.role, value, item.dims, case.values)
            if self.recipe is not None and item.name in masks_as_floats(self.recipe):
                value = (value < 0.3).to(value.dtype)
            out[item.name] = value.to(_stored(item, dtype))
        if self.recipe is None:
            return self._with_integers(out, sizes, case.seed)
        if case.values in PATTERNS:
            out = at_extremes(self.recipe, out, case.values, case.turn, dtype)
        return self.with_derived(in_range(self.recipe, sizes, out, generator))

    def _with_integers(
        self, inputs: Mapping[str, Tensor], sizes: Mapping[str, int], seed: int
    ) -> dict[str, Tensor]:
        """Integers of an unread spec, as it runs with them: tried on the CPU, where a place that is
        not there is an error and not the end of the process."""

        def runs(tried: Mapping[str, Tensor]) -> bool:
            try:
                self._exact_on(torch.device("cpu"), tried)
            except SpecError:
                return False
            return True

        pairs = sizes["B"] * sizes["Hq"] * sizes["Nq"] * sizes["Nk"]
        if pairs > TRIED:
            return integers_redrawn(
                self.signature, inputs, sizes, seed, lambda _: True, (documents,)
            )
        return integers_redrawn(self.signature, inputs, sizes, seed, runs, DRAWS)

    def with_derived(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The inputs and the tables that the spec builds by itself."""
        out = dict(inputs)
        if self.recipe is not None and any(i.derive is not None for i in self.recipe.inputs):
            plain = {t.name: inputs[t.name].cpu() for t in self.program.tensors}
            found = derive_inputs(self.path, self.recipe, plain, self.options)
            out |= {name: value.to(self.device) for name, value in found.items()}
        return out

    def _draw(
        self,
        item: Input,
        shape: list[int],
        generator: torch.Generator,
        turn: int,
        sizes: Mapping[str, int],
    ) -> Tensor:
        """Values as a model brings them: ids sorted in documents, slopes positive, bias normal.
        From turn 1 on ids and flags as `engine.spec.decks.integer_draws` has them."""
        where: dict[str, Any] = {"device": self.device, "generator": generator}
        if self.recipe is not None and item.dims and is_length(item, self.recipe):
            return lengths(item, shape, sizes, generator)
        if turn and item.dtype in ("bool", "i32", "i64"):
            asked = self.recipe or self.signature
            ways = FLAGS if item.dtype == "bool" else ways_of(item, asked)
            return in_turn(ways, shape, generator, turn, item.dims[:1] == ("B",))
        if item.dtype == "bool":
            return torch.rand(shape, **where) < 0.8
        if item.dtype in ("i32", "i64"):
            count = 12 if shape and shape[-1] >= 2048 else DOCUMENTS
            value = torch.randint(0, count, shape, **where)
            return value.sort(-1).values if value.dim() else value + 8
        # Of what an unread spec does with a vector nobody knows that it must be positive.
        signed = self.recipe is None and item.dims and generator.initial_seed() % 2
        if item.role == "extra" and len(item.dims) <= 1 and not signed:
            return 0.02 + 0.3 * torch.rand(shape, **where)
        return torch.randn(shape, **where)

    # --- the spec itself ---------------------------------------------------------------------

    def exact(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """The spec's function with every float in float64, as [B, Hq, Nq, Dv]."""
        try:
            return self._exact_on(self.oracle_device, inputs)
        except Exception:
            if self.oracle_device.type == "cpu":
                raise
            # A spec that names a device itself runs where it can; one that runs nowhere at these
            # sizes says nothing about other sizes.
            out = self._exact_on(torch.device("cpu"), inputs)
            self.oracle_device = torch.device("cpu")
            return out

    def _exact_on(self, device: torch.device, inputs: Mapping[str, Tensor]) -> Tensor:
        given = {t.name: inputs[t.name].to(device) for t in self.program.tensors}
        with surroundings(self.source):
            if device.type == "cpu":
                out = run_wide(self.program, given)
            else:
                wide = {
                    n: v.to(torch.float64) if v.dtype.is_floating_point else v
                    for n, v in given.items()
                }
                with torch.device(device), Widen():  # type: ignore[no-untyped-call]
                    out = self.program.run(wide, broadcast_mods)
        return output_as_bhnd(self.signature, out).to(self.device)

    def finite_as_ever(self, inputs: Mapping[str, Tensor]) -> bool:
        """Whether the spec's output is finite where it is with a small q; where logits of
        thousands overflow there is nothing to hold a kernel to."""
        q = self.role["q"].name
        usual = self.exact({**inputs, q: torch.full_like(inputs[q], SMALL)})
        return bool((usual.isfinite() == self.exact(inputs).isfinite()).all())

    def low(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """The same function run by PyTorch in the inputs' own precision, as [B, Hq, Nq, Dv]."""
        given = {t.name: inputs[t.name].to(self.oracle_device) for t in self.program.tensors}
        with surroundings(self.source), torch.device(self.oracle_device):
            torch.set_default_dtype(torch.float32)
            out = self.program.run(given, broadcast_mods)
        return output_as_bhnd(self.signature, out).to(self.device)

    def eager(
        self, compiler: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None
    ) -> Callable[[Mapping[str, Tensor]], Tensor]:
        """The function as a program would call it: loaded once, in the inputs' precision.

        `compiler`, such as torch.compile, is given the function itself.
        """
        with surroundings(self.source):
            torch.set_default_dtype(torch.float32)
            function = load_function(self.source)
        if compiler is not None:
            _make_importable(function)
            function = compiler(function)
        scalars = {s.name: s.value for s in self.source.scalars if not s.size}

        def call(inputs: Mapping[str, Tensor]) -> Tensor:
            given = {t.keyword: inputs[t.name] for t in self.source.tensors}
            if self.source.kind == "eager":
                out, _ = self.program.parts(function(**given, **scalars), inputs)
            else:
                sizes = size_arguments(inputs)
                named = {s.name: sizes[s.name] for s in self.source.scalars if s.size}
                mods = sorted_mods(self.source, function(**given, **scalars, **named))
                out = broadcast_mods(inputs["q"], inputs["k"], inputs["v"], *mods)
            return output_as_bhnd(self.signature, out)

        def on_device(inputs: Mapping[str, Tensor]) -> Tensor:
            with torch.device(self.oracle_device), torch.no_grad():
                return call(inputs)

        return on_device

    def expected(self, inputs: Mapping[str, Tensor]) -> Expected:
        """What the recipe says in float64: O, LSE, kept pairs. Asks for a recipe."""
        assert self.recipe is not None
        with torch.device(self.device):
            return expected(self.recipe, inputs)

    def rounding_of_lse(self, inputs: Mapping[str, Tensor], lse: Tensor, live: Tensor) -> float:
        """See `engine.spec.reference.oracle.rounding_of_lse`. Asks for a recipe."""
        assert self.recipe is not None
        with torch.device(self.device):
            return rounding_of_lse(self.recipe, inputs, lse, live)

    def outcome(self, inputs: Mapping[str, Tensor]) -> Outcome:
        """What one call's outputs are compared with.

        Raises `SpecError` where there is no recipe and the function does not run at these sizes.
        """
        if self.recipe is not None:
            want = self.expected(inputs)
            return Outcome(want.empty, want.lse, want, None)
        q, v = self.canonical(inputs, "q"), self.canonical(inputs, "v")
        if not v.shape[2]:  # without keys O is 0, whatever the function writes there
            exact = torch.zeros(*q.shape[:3], v.shape[3], dtype=torch.float64, device=self.device)
            return Outcome(torch.ones_like(exact[..., 0], dtype=torch.bool), None, None, exact)
        exact = self.exact(inputs)
        return Outcome(exact.isnan().all(-1), None, None, exact)

    def magnitude(self, inputs: Mapping[str, Tensor], exact: Tensor | None = None) -> Tensor:
        """The natural size of each element of O (`exact`, where it is there): sum_j |w_ij v_jd|.

        By the recipe's weights, or what the function makes of |V|, which is the same where no
        weight is negative; never less than O itself.
        """
        name = self.role["v"].name
        positive = {**inputs, name: inputs[name].abs()}
        if self.recipe is not None:
            return self.expected(positive).o.abs()
        o = self.exact(inputs) if exact is None else exact
        return torch.maximum(self.exact(positive).abs().nan_to_num(), o.abs().nan_to_num())

    def weights(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """The matrix that multiplies V, [B, Hq, Nq, Nk], by running the spec on one-hot V.

        Without a recipe key j is shown by column j mod Dv, as a kernel shows it: weights may depend
        on the column.
        """
        v = self.canonical(inputs, "v")
        n_k, columns = v.shape[2], v.shape[3]
        # One run with Nk columns where the spec lets V have them, else Dv columns at a time.
        for width in (n_k, columns) if self.recipe is not None else (columns,):
            try:
                return torch.cat(
                    [
                        self.exact(self.replaced(inputs, "v", one_hot(v, first, width)))
                        for first in range(0, n_k, width)
                    ],
                    -1,
                )[..., :n_k]
            except SpecError:
                if width == columns:
                    raise
        raise AssertionError("unreachable")

    def replaced(self, inputs: Mapping[str, Tensor], role: str, value: Tensor) -> dict[str, Tensor]:
        """The inputs with q, k or v given as [B, heads, rows, columns]."""
        item = self.role[role]
        return {**inputs, item.name: _from_bhnd(item, value).contiguous()}

    def canonical(self, inputs: Mapping[str, Tensor], role: str) -> Tensor:
        """q, k or v as [B, heads, rows, columns]."""
        return canonical_layout(self.signature, role, inputs)

    @property
    def approximate(self) -> bool:
        """Whether the score goes through tanh, for which the hardware has 2^-11 relative error."""
        from engine.cuir.nodes import Call, walk_expr

        if self.recipe is None:
            return saturates(self.source)
        exprs = [self.recipe.score, *([self.recipe.weight] if self.recipe.weight else [])]
        names = {e.fn for x in exprs for e in walk_expr(x) if isinstance(e, Call)}
        return bool(names & {"tanh", "tanh_approx", "sigmoid"})

    def integers(self) -> tuple[int, ...]:
        """Whole numbers that may be a window or a block, where no recipe says which are."""
        return integers_of(self.source)


def _make_importable(function: Any) -> None:
    """Give the function's module a name that it can be imported by: the compiler looks the globals
    of what it inlines up that way, and a spec is loaded without leaving a module behind."""
    names = function.__globals__
    name = f"cubridge_spec_{id(names):x}"
    module = types.ModuleType(name)
    module.__dict__.update(names)
    names["__name__"] = module.__dict__["__name__"] = name
    sys.modules[name] = module


def one_hot(v: Tensor, first: int, width: int, value: float = 1.0) -> Tensor:
    """v[.., first + d, d] = value, else 0: [B, heads, Nk, width] in V's dtype."""
    out = v.new_zeros((*v.shape[:3], width))
    index = torch.arange(min(width, v.shape[2] - first), device=v.device)
    out[:, :, first + index, index] = value
    return out


def _from_bhnd(item: Input, value: Tensor) -> Tensor:
    """A [B, heads, rows, columns] tensor in the input's own order of dimensions."""
    kept = [places_of(item.dims).index(n) for n in range(len(item.dims))]
    for axis in range(4):
        if axis not in kept:
            value = value.narrow(axis, 0, 1)
    out = value.permute([*kept, *(a for a in range(4) if a not in kept)])
    return out.reshape(out.shape[: len(kept)])


def _stored(item: Input, dtype: torch.dtype) -> torch.dtype:
    """How the spec is given an input; i64 ids stay i64 for it."""
    fixed = {"f32": torch.float32, "i32": torch.int32, "i64": torch.int64, "bool": torch.bool}
    return dtype if item.dtype == "T" else fixed[item.dtype]


def unit(dtype: torch.dtype) -> float:
    """The unit roundoff of a format: half its epsilon."""
    return float(torch.finfo(dtype).eps) / 2
