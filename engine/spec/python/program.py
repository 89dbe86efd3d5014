"""A spec as something to run: `Program` gives tensors to the user's function at chosen sizes."""

from __future__ import annotations

import ast
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from engine.spec.python.flex_attention import Mod, ModsRunner, written_out
from engine.spec.python.load import explained, load_function
from engine.spec.python.spec_file import SpecSource, TensorParameter, roles_by_place

FLEX_INPUTS = (
    TensorParameter("q", "T", ("B", "Hq", "Nq", "D"), 0),
    TensorParameter("k", "T", ("B", "Hkv", "Nk", "D"), 0),
    TensorParameter("v", "T", ("B", "Hkv", "Nk", "D"), 0),
)


@dataclass(frozen=True, slots=True)
class Program:
    """The declared inputs of a spec (q, k, v included for a factory) and how to run it."""

    source: SpecSource
    tensors: tuple[TensorParameter, ...]
    varied: Mapping[int, int] = field(default_factory=dict)  # integers at other values, for reading

    def run(self, inputs: Mapping[str, torch.Tensor], mods_runner: ModsRunner) -> torch.Tensor:
        """The spec's output from a fresh module. Call it inside `load.surroundings`."""
        return self.outputs(inputs, mods_runner)[0]

    def outputs(
        self, inputs: Mapping[str, torch.Tensor], mods_runner: ModsRunner
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """`run`, and the spec's second output, which has no columns, where it returns one."""
        with written_out(self.source, mods_runner):
            return self._call(load_function(self.source, self.varied), inputs, mods_runner)

    def call(
        self, function: Any, inputs: Mapping[str, torch.Tensor], mods_runner: ModsRunner
    ) -> torch.Tensor:
        """`run` with a function that `load.load_function` gave before."""
        with written_out(self.source, mods_runner):
            return self._call(function, inputs, mods_runner)[0]

    def _call(
        self, function: Any, inputs: Mapping[str, torch.Tensor], mods_runner: ModsRunner
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        return self.parts(self._given(function, inputs, mods_runner), inputs)

    def _given(
        self, function: Any, inputs: Mapping[str, torch.Tensor], mods_runner: ModsRunner
    ) -> Any:
        """What the user's function returns."""
        scalars = {
            s.name: self.varied.get(s.value, s.value) if type(s.value) is int else s.value
            for s in self.source.scalars
            if not s.size
        }
        with explained(self.source):
            if self.source.kind == "eager":
                out = function(**{t.keyword: inputs[t.name] for t in self.tensors}, **scalars)
            else:
                sizes = size_arguments(inputs)
                for t in self.source.tensors:
                    for dim, size in zip(t.dims, inputs[t.name].shape, strict=True):
                        sizes.setdefault(dim, size)
                scalars |= {s.name: sizes[s.name] for s in self.source.scalars if s.size}
                extras = {t.keyword: inputs[t.name] for t in self.source.tensors}
                mods = sorted_mods(self.source, function(**extras, **scalars))
                out = mods_runner(inputs["q"], inputs["k"], inputs["v"], *mods)
        return out

    def parts(
        self, out: Any, inputs: Mapping[str, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """What the user's function gave: the output, heads and columns apart, and the rows'
        log-sum-exp where there is one. Raises `SpecError` for anything else."""
        match out:
            case torch.Tensor():
                return self._split(out, inputs), None
            case (torch.Tensor() as first, torch.Tensor() as second):
                first = self._split(first, inputs)
                if second.dim() == first.dim() - 1:
                    return first, second
        what = f"a {type(out).__name__}" if out is not None else "nothing"
        raise self.source.error(
            f"{self.source.function} returns {what}",
            self.source.line,
            "return the output tensor alone, or it and its rows' log-sum-exp",
        )

    def _split(self, out: torch.Tensor, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The output with heads and columns apart, where the spec declares that it merges them, or
        declares nothing and the output has a dimension less than the queries."""
        if self.source.returns is None:
            found = self._merged(out, inputs)
            return out if found is None else out.reshape((*out.shape[:-1], *found))
        if not self.source.merged:
            return out
        shapes = ((t.dims, inputs[t.name].shape) for t in self.tensors)
        sizes = {d: n for dims, shape in shapes for d, n in zip(dims, shape, strict=True)}
        last = [int(d) if d.isdigit() else sizes.get(d, -1) for d in self.source.returns[-2:]]
        whole = out.dim() == len(self.source.returns) - 1 and out.size(-1) == last[0] * last[1]
        return out.reshape((*out.shape[:-1], *last)) if whole else out

    def _merged(
        self, out: torch.Tensor, inputs: Mapping[str, torch.Tensor]
    ) -> tuple[int, int] | None:
        """The heads and columns that an undeclared output has as one last dimension: the heads are
        the dimension of q that it lacks."""
        query = next(n for n, role in roles_by_place(self.tensors).items() if role == "q")
        outer = Counter(inputs[query].shape[:-1])
        heads = list((outer - Counter(out.shape[:-1])).elements())
        if inputs[query].dim() != 4 or out.dim() != 3 or len(heads) != 1 or not out.numel():
            return None
        columns, left = divmod(out.size(-1), heads[0])
        return None if left else (heads[0], columns)

    def merges(self, inputs: Mapping[str, torch.Tensor], mods_runner: ModsRunner) -> bool:
        """Whether the spec's output comes with heads and columns as one dimension."""
        with written_out(self.source, mods_runner):
            out = self._given(load_function(self.source, self.varied), inputs, mods_runner)
        first: torch.Tensor = out[0] if isinstance(out, tuple) else out
        return self._split(first, inputs).dim() > first.dim()


# Values for large integers beside the trace sizes: around the lengths, or below every one.
AROUND = ((5, 27, 9, 40), (6, 9, 33, 12), (4, 21, 20, 8))
SMALL = ((5, 6, 9, 4), (3, 7, 5, 8), (4, 9, 6, 5))
SMALLEST_VARIED = 8
MOST_FIXED = 2**24


def variations(program: Program) -> list[list[Program]]:
    """The program at each trace size with its integers varied.

    What a large integer does only shows at lengths past it: `min(window, Nk)` in Python is Nk at
    every small size. With the window varied beside the sizes, the two can be told apart.
    """
    values = sorted(large_integers(program.source), reverse=True)
    if not values or len(values) > len(AROUND):
        return []
    return [
        [
            replace(program, varied={v: row[k] for v, row in zip(values, rows, strict=False)})
            for k in range(len(rows[0]))
        ]
        for rows in (AROUND, SMALL)
    ]


def large_integers(source: SpecSource) -> set[int]:
    """The integers of the file and of the options that have no effect at small sizes."""
    found = {
        node.value
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Constant) and type(node.value) is int
    }
    found |= {s.value for s in source.scalars if type(s.value) is int}
    return {v for v in found if v >= SMALLEST_VARIED}


def varied_name(value: int) -> str:
    """The size that stands for a varied integer; no Python name can clash with it."""
    return f"%{value}"


def program_of(source: SpecSource) -> Program:
    """Raises `SpecError` when q, k and v are not there, or too large to run."""
    for t in source.tensors:
        fixed = math.prod(int(d) for d in t.dims if d.isdigit())
        if fixed > MOST_FIXED:
            raise source.error(
                f"{t.name} has {fixed} elements by its numbers alone, and reading runs the spec",
                t.line, "name its dimensions: the kernel's lengths are free",
            )  # fmt: skip
    if source.kind == "eager":
        if len(source.tensors) < 3:
            raise source.error(
                f"attention has {len(source.tensors)} annotated tensors; q, k and v are needed",
                source.line, 'annotate them, such as q: Float[Tensor, "B Hq Nq D"]',
            )  # fmt: skip
        return Program(source, source.tensors)
    clash = {"q", "k", "v"} & {t.name for t in source.tensors}
    if clash:
        raise source.error(
            f"input {min(clash)} of a factory has the name of an attention input", source.line,
            "rename it: a factory takes the extra inputs only",
        )  # fmt: skip
    return Program(source, (*FLEX_INPUTS, *source.tensors))


def size_arguments(inputs: Mapping[str, torch.Tensor]) -> dict[str, int]:
    """The sizes that a factory may name as parameters."""
    q, k = inputs["q"], inputs["k"]
    return {
        "B": q.size(0), "Hq": q.size(1), "Nq": q.size(2), "D": q.size(3),
        "Hkv": k.size(1), "Nk": k.size(2),
    }  # fmt: skip


def sorted_mods(source: SpecSource, mods: Any) -> tuple[tuple[Mod, ...], tuple[Mod, ...]]:
    """(score mods, mask mods) of what a factory returned, told apart by their parameter count."""
    listed = list(mods) if isinstance(mods, (tuple, list)) else [mods]
    fix = "return score_mod(score, b, h, q_idx, kv_idx), mask_mod(b, h, q_idx, kv_idx), or a tuple"
    score_mods, mask_mods = [], []
    for mod in listed:
        if mod is None:
            continue
        if not callable(mod):
            raise source.error(f"the factory returns a {type(mod).__name__}", source.line, fix)
        count = _parameters(mod)
        if count == 5:
            score_mods.append(mod)
        elif count == 4:
            mask_mods.append(mod)
        else:
            name = getattr(mod, "__name__", "a mod")
            raise source.error(f"{name} has {count} parameters, not 5 or 4", source.line, fix)
    if not score_mods and not mask_mods:
        raise source.error("the factory returns no mod", source.line, fix)
    return tuple(score_mods), tuple(mask_mods)


def _parameters(mod: Mod) -> int:
    import inspect

    wanted = [
        p for p in inspect.signature(mod).parameters.values()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
    ]  # fmt: skip
    return len(wanted)


def broadcast_mods(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    score_mods: tuple[Mod, ...],
    mask_mods: tuple[Mod, ...],
    scale: float | None = None,
) -> torch.Tensor:
    """FlexAttention written out: scale, score mods in order, masks, softmax. Mods are broadcast."""
    group = q.size(1) // k.size(1)
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k.transpose(-2, -1) * (q.size(-1) ** -0.5 if scale is None else scale)
    b, h, i, j = index_grid(q, k)
    for mod in score_mods:
        scores = mod(scores, b, h, i, j)
    for mod in mask_mods:
        keep = mod(b, h, i, j)
        if not isinstance(keep, torch.Tensor):
            keep = torch.full((), bool(keep))
        scores = torch.where(keep, scores, float("-inf"))
    return torch.nan_to_num(torch.softmax(scores, -1), nan=0.0).to(v.dtype) @ v


def index_grid(q: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """b, h, i, j as tensors that broadcast to [B, Hq, Nq, Nk]."""
    counts = (q.size(0), q.size(1), q.size(2), k.size(2))
    return tuple(
        torch.arange(n).reshape([n if d == place else 1 for d in range(4)])
        for place, n in enumerate(counts)
    )
