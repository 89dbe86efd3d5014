"""What is wrong in an output, in words: which elements, and the first number on the way to them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.foreign.numbers.expected import CHAIN, MADE_OF, MASK, OUT, SCORES
from engine.foreign.numbers.first import First, Made
from engine.foreign.numbers.flow import Carried, between, blocks, origin, reached_by, values
from engine.foreign.numbers.nans import Nans
from engine.foreign.numbers.where import Where, told_places
from engine.ptx.syntax import Instruction, Module

Array = np.ndarray[Any, Any]
_PRODUCTS = ("mma", "wgmma", "wmma")


@dataclass(frozen=True, slots=True)
class Told:
    """Sentences, and the instructions that they name, in the order of the code."""

    lines: tuple[str, ...]
    named: tuple[Instruction, ...]


def told(
    first: First | None, module: Module, stores: Sequence[Instruction], carried: Carried,
    unset: bool, where: Where, stored: Collection[str] = (),
) -> Told:  # fmt: skip
    """Which kinds of numbers are the spec's, and which is the first that is not.

    Args:
        first: None where the spec's numbers are not known.
        stores: what writes the output; `unset`: elements were left that nothing wrote.
        stored: the outputs that are wrong as they were left, by the names of their kinds.
    """
    out = _told(first, module, stores, carried, where, stored)
    if not unset or not stores:
        return out
    way = [by for at in stores for by in reached_by(module, at)]
    lines = [f"whether it is written is decided by {told_places(way, where)}"] if way else []
    return Told((*out.lines, *lines), tuple(in_order([*out.named, *way])))


def told_nans(tensor: str, which: Array, nans: Nans, where: Where) -> Told:
    """Where the NaNs of an output begin; `which` of its elements are NaN."""
    way, led = in_order(nans.made), in_order(nans.infinite)
    if not way:
        return Told((), ())
    some = f" ({said})" if (said := pattern(which, "bhid"[: which.ndim])) else ""
    words = "is first made at" if nans.sure else "is first seen at"
    lines = [f"NaN in {tensor.upper()}{some} {words} {told_places(way, where)}"]
    if led:
        lines.append(f"an infinity that it comes from is first made at {told_places(led, where)}")
    return Told(tuple(lines), tuple(in_order([*way, *led])))


def _told(
    first: First | None, module: Module, stores: Sequence[Instruction], carried: Carried,
    where: Where, stored: Collection[str],
) -> Told:  # fmt: skip
    if first is None or not (first.right or first.wrong or not first.found):
        way = in_order([*values(module, stores, (), carried), *stores])
        return Told((f"made and written at {told_places(way, where)}",) if way else (), tuple(way))
    wrong, right = first.wrong, {m.kind.name: m for m in first.right}
    known = [p for m in first.right for p in m.parts]
    said = [f"{_kind(m, stored)} ({told_places([m.parts[0].at], where)})" for m in first.right]
    lines = [f"the reference's: {', '.join(said)}"] if said else []
    if wrong is not None:
        start = [p for name in MADE_OF.get(wrong.kind.name, ()) if name in right
                 for p in right[name].parts]  # fmt: skip
        made = in_order(p.at for p in wrong.parts)
        way = in_order(between(module, start, wrong.parts, known, carried))
        words = "on the way there:"
        if wrong.kind.name == MASK:
            way, words = origin(module, made), "what is dropped is decided at"
        lines.append(f"the first that are not: {wrong.kind.name} ({told_places(made, where)}): "
                     f"{_lacking(wrong)}")  # fmt: skip
        if way:
            lines.append(f"{words} {told_places(way, where)}")
        rows = wrong.lacks.sum(-1) > 0.3 * wrong.asked.sum(-1)  # a few are hit by others
        if wrong.kind.name == SCORES and not rows.all() and not wrong.lacks[~rows].any():
            way = in_order(blocks(module, wrong.parts))
            lines.append(
                f"what a block takes is told by its number, read at {told_places(way, where)}"
            )
        return Told(tuple(lines), tuple(in_order([*made, *way])))
    if not first.found:
        code = [at for kernel in module.kernels.values() for at in kernel.code]
        named = in_order(at for at in code if at.name in _PRODUCTS)
        named = named or in_order(at for at in code if at.name == "fma")
        lines.append(f"no numbers of the reference were found; products are made at "
                     f"{told_places(named, where)}")  # fmt: skip
        return Told(tuple(lines), tuple(named))
    missing = [name for name in CHAIN if name not in right]
    start = [p for name in missing for of in MADE_OF[name] if of in right for p in right[of].parts]
    # Of an O that is right what makes it is named, too: it reaches no output, or the wrong place.
    made = [p.at for p in right[OUT].parts] if OUT in right else []
    start += right[OUT].parts if OUT in right else ()
    made += values(module, stores, known, carried) if missing else ()
    way = in_order([*made, *between(module, start, (), known, carried), *stores])
    if unknown := [name for name in missing if name not in first.found and name != OUT]:
        lines.append(f"not found: {', '.join(unknown)}")
    lines.append(f"what comes next: {told_places(way, where)}")
    return Told(tuple(lines), tuple(way))


def _kind(made: Made, stored: Collection[str]) -> str:
    form = made.form or ("before it is stored" if made.kind.name in stored else "")
    return f"{made.kind.name} {form}".strip()


def _lacking(made: Made) -> str:
    """Which of a kind's numbers were not made, the first of them, and what was made instead."""
    lacks, axes = made.lacks, made.kind.axes
    at = tuple(int(x) for x in np.argwhere(lacks)[0])
    first = " ".join(f"{name}={n}" for name, n in zip(axes, at, strict=True))
    which = f" ({some})" if (some := pattern(lacks, axes)) else ""
    words = f"{int(lacks.sum())} of {lacks.size}{which} are missing; at {first} "
    if made.kind.name == MASK:
        words = words.replace("are missing", "are others")
        counts = made.kind.needed[at]
        return words + ("one is dropped that counts" if counts else "one counts that is dropped")
    words += f"the spec has {made.kind.forms[made.form][at]:.6g}"
    others = made.others[np.argsort(np.abs(made.others - made.kind.forms[made.form][at]))]
    if len(others):
        many = f"the nearest of {len(others)} others" if len(others) > 1 else "the other one"
        words += f"; {many} that were made is {others[0]:.6g}"
    return words


def elements(wrong: Array, unset: Array, axes: str) -> str:
    """Which elements of an output are wrong, and of how many nothing was written."""
    said = [some] if (some := pattern(wrong, axes)) else []
    if unset.any():
        said.append(f"nothing wrote {'them' if (unset == wrong).all() else int(unset.sum())}")
    return "; ".join(said)


def in_order(instructions: Iterable[Instruction]) -> list[Instruction]:
    """Each once, by their lines, without those whose place in the source is not known."""
    known = {id(at): at for at in instructions if at.source is not None}
    return sorted(known.values(), key=_line)


def _line(at: Instruction) -> tuple[str, int]:
    return (at.source.file, at.source.line) if at.source is not None else ("", at.line)


def ranges(wrong: Array) -> str:
    """Which numbers of an axis are meant, [n] of bool: `3`, `64 to 99`, `8 to 15 of each 16`."""
    at = np.flatnonzero(wrong)
    if len(at) == len(wrong):
        return "all"
    if at[-1] - at[0] + 1 == len(at):
        return str(at[0]) if len(at) == 1 else f"{at[0]} to {at[-1]}"
    for period in (2, 4, 8, 16, 32, 64, 128):
        rest = np.unique(at % period)
        same = np.isin(np.arange(len(wrong)) % period, rest)
        if period < len(wrong) and np.array_equal(np.flatnonzero(same), at):
            inside = rest[-1] - rest[0] + 1 == len(rest)
            some = f"{rest[0]} to {rest[-1]}" if inside and len(rest) > 1 else _listed(rest)
            return f"{some} of each {period}"
    return f"{len(at)} of {len(wrong)} from {at[0]} to {at[-1]}"


def _listed(numbers: Array) -> str:
    return ", ".join(map(str, numbers))


def pattern(wrong: Array, axes: str) -> str:
    """Which elements are wrong: along each axis, or by how far the key is from the query."""
    said = []
    for n, name in enumerate(axes):
        others = tuple(m for m in range(wrong.ndim) if m != n)
        one = ranges(np.asarray(wrong.any(others)))
        if one != "all":
            said.append(f"{name} {one}")
    if axes.endswith("ij"):
        i, j = np.nonzero(wrong.any(tuple(range(wrong.ndim - 2))))
        if len(i) > 1 and len(np.unique(j - i)) == 1:
            by = int(j[0] - i[0])
            said.append("j = i" + (f" + {by}" if by > 0 else f" - {-by}" if by else ""))
    return ", ".join(said)
