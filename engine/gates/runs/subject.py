"""What a CPU gate judges: a module, and what it must compute."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.child.spec_process import SpecProcess
from engine.cuir.nodes import Module, Name, free_names
from engine.cuir.static.check import check
from engine.cuir.static.host_constants import head_sizes
from engine.cuir.static.legal_sizes import USUAL, LegalSizes
from engine.gates.analysis.float_expressions import float_in_lists
from engine.gates.deck import Case
from engine.gates.runs.branch_coverage import Watch
from engine.gates.widths.overflow import overflow
from engine.gates.widths.size_floats import size_as_float
from engine.spec import Recipe
from engine.spec.decks.deck_inputs import violated
from engine.spec.python.declarations import declared
from engine.spec.python.signature import fixed_sizes
from engine.spec.python.spec_file import read_source
from engine.transfer.binding import Binding

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a gate fails: in words, with the op and a counterexample where there is one."""

    reason: str
    op: str | None = None
    counterexample: Mapping[str, Any] | None = None

    def details(self) -> dict[str, Any]:
        out: dict[str, Any] = {}
        if self.op is not None:
            out["op"] = self.op
        if self.counterexample is not None:
            out["counterexample"] = dict(self.counterexample)
        return out


@dataclass(frozen=True, slots=True)
class Subject:
    """A module and what it must compute.

    `watch` is told what the conditions come out as that somebody wrote with a free hand: each of
    them must be seen both ways. `left` holds what exact runs left in the workspace, by sizes and
    seed: lists of tiles that follow from whole numbers alone are the same in typed mode. `sizes`
    are those that the kernel's package declares.
    `function` is the spec's own, which runs in another process; `close` it.
    """

    module: Module
    recipe: Recipe
    binding: Binding
    spec: Path
    options: Mapping[str, Any]
    watch: Watch | None = None
    process: SpecProcess | None = field(default=None, compare=False)
    sizes: LegalSizes = USUAL
    left: dict[tuple[int, ...], Tensor] = field(default_factory=dict, init=False, compare=False)

    def __post_init__(self) -> None:
        if self.process is None:
            object.__setattr__(self, "process", SpecProcess(self.spec, self.options))

    @property
    def function(self) -> SpecProcess:
        """The spec's own function."""
        assert self.process is not None
        return self.process

    def allows(self, case: Case) -> bool:
        """Whether the spec is defined for these sizes."""
        return violated(self.recipe, case.sizes | self.columns) is None

    def at_fixed(self, case: Case) -> Case:
        """The case with the sizes that the spec gives as numbers."""
        fixed: dict[str, Any] = dict(fixed_sizes(self.recipe.constraints))
        return replace(case, **{n: size for n, size in fixed.items() if n in case.sizes})

    @property
    def lists_are_whole(self) -> bool:
        """Whether neither the mask nor what the module makes its lists of tiles of is a float."""
        kinds = {i.name: i.dtype for i in self.recipe.inputs}
        read = free_names(self.recipe.keep)
        whole = all(kinds.get(n) in (None, "i32", "i64", "bool") for n in read)
        return whole and not float_in_lists(self.module)

    @property
    def unread(self) -> bool:
        """Whether the recipe is of what the spec declares alone."""
        return any(clause.kind == "unread" for clause in self.recipe.clauses)

    @property
    def columns(self) -> dict[str, int]:
        """D of q and k, Dv of v and the output."""
        head, value = head_sizes(self.module) or (64, 64)
        return {"D": head, "Dv": value}

    @property
    def dtype(self) -> torch.dtype:
        kind = dict(self.module.spec).get("T")
        return torch.float16 if kind == Name("f16") else torch.bfloat16


def as_declared(spec: Path, options: Mapping[str, Any]) -> Recipe:
    """What an unread spec says about its inputs; its score and mask are not to be asked for."""
    return declared(read_source(spec, options)).as_recipe("no recipe was read")


def is_element(recipe: Recipe, name: str) -> bool:
    """Whether an input has the specialisation's element type."""
    return any(i.name == name and i.dtype == "T" for i in recipe.inputs)


def as_typed(subject: Subject, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs in their declared types: PyTorch, as a yardstick, has no more digits than they."""
    return {
        n: t.to(subject.dtype if is_element(subject.recipe, n) else torch.float32)
        if isinstance(t, Tensor) and t.is_floating_point()
        else t
        for n, t in inputs.items()
    }


def at_sight(subject: Subject) -> Failure | None:
    """What is wrong with the module before anything runs."""
    found = check(subject.module)
    if found:
        return Failure(found[0].message, op=op_text(found[0].path))
    unfilled = without_value(subject)
    if unfilled is not None:
        return unfilled
    base = None if subject.watch is None else subject.watch.base
    wide = overflow(subject.module, base, subject.sizes)
    if wide is not None:
        return Failure(wide.message, op=op_text(wide.path))
    if subject.watch is None:
        return None
    if not subject.unread:
        made = size_as_float(subject.watch.base, subject.module, subject.binding, subject.recipe)
        if made is not None:
            return Failure(made.reason, op=op_text(made.path))
    return None


def without_value(subject: Subject) -> Failure | None:
    """A field of the argument struct that the binding fills with nothing."""
    binding, space = subject.binding, subject.binding.workspace
    filled = {t.field for t in binding.tensors} | {s.field for s in binding.sizes}
    filled |= {s.field for s in binding.scalars} | {s.field for s in binding.scratch}
    if space is not None:
        filled |= {space.field, space.planned, space.slots}
    for index, there in enumerate(subject.module.fields):
        if there.name not in filled:
            reason = f"args.{there.name} is filled by no input, output or size of the spec"
            return Failure(reason, op=op_text(("Args", index)))
    return None


def op_text(path: tuple[str | int, ...]) -> str:
    """An op's path as verdicts write it."""
    return "/".join(map(str, path))
