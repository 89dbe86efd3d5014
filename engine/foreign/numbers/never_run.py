"""Lines of a kernel that no case came to: a pass says nothing of them.

A line is taken apart by the calls that it was inlined through, and not by the copies that a
compiler makes of it (a loop's unrolled body and its rest): what the source says there is in all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.foreign.numbers.where import Where, listed
from engine.ptx.syntax import Immediate, Instruction, Module, Register, Vector, registers

# What scores, weights and outputs are made by: products, of matrices and of floats, exponentials.
_PRODUCTS = frozenset({"mma", "wmma", "wgmma", "dp2a", "dp4a", "ex2", "tanh"})
_FLOAT_PRODUCTS = frozenset({"fma", "mul", "mad"})
_STORES = frozenset({"st", "red", "atom", "cp"})
_MOVES = frozenset({"mov", "cvt", "selp"})


@dataclass(frozen=True, slots=True)
class NeverRun:
    """Lines of the kernels that were launched, as the author's functions have them.

    Args:
        lines: `a.cu:15 to 22, b.h:9`; "" where each was run.
        making: those of `lines` that may make scores, weights or outputs.
    """

    lines: str = ""
    making: str = ""

    @property
    def remark(self) -> str:
        """What a pass says of them."""
        return f"; never run: {self.lines}" if self.lines else ""


def never_run(
    module: Module, launches: Iterable[tuple[str, frozenset[int]]], where: Where
) -> NeverRun:
    """The lines at which nothing was executed by any of the launches, and those at which nothing
    was of what may make scores, weights or outputs.

    Args:
        launches: of each the kernel and the PTX lines that it came to.
    """
    ran: dict[str, frozenset[int]] = {}
    for kernel, lines_of_it in launches:
        ran[kernel] = ran.get(kernel, frozenset()) | lines_of_it
    left: set[str] = set()
    making: set[str] = set()
    for name, came in ran.items():
        code = module.kernels[name].code
        known = {id(at.source): at for at in code}  # few, of many instructions
        places = {p: (at.source, where(at).line) for p, at in known.items()}
        seen = {id(at.source) for at in code if at.line in came}
        run, run_lines = {places[p][0] for p in seen}, {places[p][1] for p in seen}
        lines = {p: line for p, (at, line) in places.items() if at is not None and at not in run}
        made = _makers(code)
        some = {lines[id(at.source)] for at in code if id(at.source) in lines and _makes(at, made)}
        making |= some
        left |= some | (set(lines.values()) - run_lines)
    return NeverRun(_words(left), _words(making))


def _words(lines: Iterable[str]) -> str:
    """Lines by their files' names, in order."""
    apart = [line.rpartition(":") for line in lines]
    rows = sorted((Path(file).name, int(line)) for file, _, line in apart)
    return listed([f"{file}:{line}" for file, line in rows])


def _makers(code: Sequence[Instruction]) -> Mapping[str, list[Instruction]]:
    """By register, the instructions that write it."""
    out: dict[str, list[Instruction]] = {}
    for at in code:
        if at.name not in _STORES:
            for name in registers(at.operands[:1]):
                out.setdefault(name, []).append(at)
    return out


def _makes(at: Instruction, made: Mapping[str, list[Instruction]]) -> bool:
    if at.name in _PRODUCTS:
        return True
    if at.name in _FLOAT_PRODUCTS:
        return at.type.startswith(("f", "bf"))
    if at.name not in _STORES or at.has("param") or at.has("local"):
        return False
    if at.name == "cp":  # a bulk copy that writes global memory
        return at.has("bulk") and at.modifiers[-1] != "prefetch" and _writes_global(at)
    if any(m.startswith("shared") for m in at.modifiers):
        return False
    if at.name != "st":  # a count is no output
        return at.type.startswith(("f", "bf"))
    return not _constant(at.operands[-1], made, frozenset())


def _writes_global(at: Instruction) -> bool:
    spaces = [m for m in at.modifiers if m.partition("::")[0] in ("global", "shared")]
    return spaces[:1] == ["global"]


def _constant(value: object, made: Mapping[str, list[Instruction]], on: frozenset[str]) -> bool:
    """Whether a stored value is made of constants alone, as what rows without a key are given."""
    match value:
        case Immediate():
            return True
        case Vector(items):
            return all(_constant(v, made, on) for v in items)
        case Register(name) if name not in on:
            return all(
                at.name in _MOVES and all(_constant(v, made, on | {name}) for v in at.operands[1:3])
                for at in made.get(name, ())
            )
    return isinstance(value, Register)  # moved from itself
