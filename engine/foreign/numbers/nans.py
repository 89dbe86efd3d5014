"""Which instructions made a NaN that reached an output, out of numbers that were none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.foreign.numbers.flow import Carried, Flow, holding
from engine.foreign.numbers.watched import Part, Step
from engine.ptx.syntax import Instruction, Module

Array = np.ndarray[Any, Any]
_NONE: frozenset[int] = frozenset()
_ACROSS = {"mma", "wmma", "wgmma", "shfl", "ld", "ldmatrix"}  # take what other threads made
_MOVES = {"mov", "ld", "st", "ldmatrix", "stmatrix", "cvt", "shfl", "selp", "cp", "prmt"}
_OTHER = ("f16", "bf16", "f16x2", "bf16x2", "f64")  # numbers that are not written down


@dataclass(frozen=True, slots=True)
class Nans:
    """Where NaNs begin that reached an output.

    Args:
        made: the instructions that made them of numbers that were none, as far as a thread's own
            numbers are told from others'.
        sure: not where numbers of other types than f32, which nobody looked at, lead there.
        infinite: the instructions that made the infinities above 0 that `made` took (-inf is what
            a mask drops by) of numbers that were none.
    """

    made: list[Instruction] = field(default_factory=list)
    sure: bool = False
    infinite: list[Instruction] = field(default_factory=list)


def first_nans(
    module: Module, stores: Sequence[Instruction], steps: Iterable[Step], carried: Carried
) -> Nans:
    """Where the NaNs begin that the stores wrote."""
    kernel = holding(module, stores[0]) if stores else None
    if kernel is None:
        return Nans()
    flow = Flow(kernel, carried)
    parts = [p for s in steps for p in s.parts if p.kernel == kernel.name]
    nan, infinite = (_Walk(flow, _where(flow, parts, of)) for of in (np.isnan, np.isposinf))
    for store in stores:
        nan.back(flow.number[id(store)], None)
    first = nan.first()
    for number in first:
        infinite.back(number, nan.threads[number])
    made, led = ([kernel.code[n] for n in sorted(some)] for some in (first, infinite.first()))
    return Nans(made, not first & nan.unsure, led)


def _where(
    flow: Flow, parts: Iterable[Part], of: Callable[[Array], Array]
) -> Mapping[int, frozenset[int]]:
    """The threads in which each instruction made such a number."""
    out: dict[int, frozenset[int]] = {}
    for part in parts:
        number = flow.number[id(part.at)]
        some = frozenset(part.threads[of(part.values)].tolist())
        out[number] = out.get(number, _NONE) | some
    return out


@dataclass(slots=True)
class _Walk:
    """From what reads a NaN (or infinity) back to what made it: `before` has, of each instruction
    that made one, those that made the ones that it read; `threads` has who made one by it."""

    flow: Flow
    threads: Mapping[int, frozenset[int]]
    before: dict[int, set[int]] = field(default_factory=dict)
    unsure: set[int] = field(default_factory=set)

    def back(self, start: int, whose: frozenset[int] | None) -> None:
        todo = [(start, whose)]
        while todo:
            number, mine = todo.pop()
            across = mine is None or self.flow.code[number].name in _ACROSS
            for maker in self.makers(number):
                made = self.threads[maker] if across or mine is None else self.threads[maker] & mine
                if made and maker not in self.before.get(number, ()):
                    self.before.setdefault(number, set()).add(maker)
                    todo.append((maker, self.threads[maker]))

    def makers(self, number: int) -> set[int]:
        """What made the f32 that an instruction reads, also where it was moved or packed since."""
        out: set[int] = set()
        todo, seen = [number], {number}
        while todo:
            for by in self.flow.made[todo.pop()] - seen:
                seen.add(by)
                at = self.flow.code[by]
                if by in self.threads:
                    out.add(by)
                    continue
                if at.type in _OTHER and at.name not in _MOVES:
                    self.unsure.add(number)
                todo.append(by)
        return out

    def first(self) -> set[int]:
        """Those that no other one comes before; else, where each is before another in a loop,
        all."""
        made = {m for makers in self.before.values() for m in makers}
        return {n for n in made if not self.before.get(n, set()) - {n}} or made
