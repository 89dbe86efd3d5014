"""Which array of shared memory an access is of, where its address is made from that one alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from engine.ptx.syntax import Address, Instruction, Kernel, Symbol, Variable, registers

# What an address may go through. What is read from memory is taken for an index, not an address.
_THROUGH = {"mov", "cvta", "cvt", "add", "sub", "mad", "or", "xor", "and", "selp", "min", "max"}


@dataclass(frozen=True, slots=True)
class Array:
    """A variable in shared memory with a size of its own: where it begins there, and its bytes."""

    name: str
    begin: int
    size: int

    @property
    def spelled(self) -> str:
        """Its name in the source: the last one of a mangled name (Itanium C++ ABI, "Mangling")."""
        found = re.search(r"E(\d+)([A-Za-z_]\w*)$", self.name)
        return found[2][: int(found[1])] if found else self.name


def accessed(
    kernel: Kernel, variables: tuple[Variable, ...], places: Mapping[str, int]
) -> dict[int, Array]:
    """By the PTX line of an instruction, the array that its one address in shared memory is made
    from. What lies in no array, and what two may lie in, is left out.

    Args:
        variables: those in shared memory; an extern one has size 0, and no bound.
    """
    arrays = {v.name: Array(v.name, places[v.name], v.size) for v in variables}
    if len(arrays) < 2:
        return {}
    makers: dict[str, list[Instruction]] = {}
    for at in kernel.code:
        if at.name in _THROUGH:
            for register in registers(at.operands[:1]):
                makers.setdefault(register, []).append(at)
    known: dict[str, set[str]] = {}

    def bases(name: str) -> set[str]:
        """The arrays whose address goes into a register."""
        if name not in known:
            found, seen, todo = set[str](), {name}, [name]
            while todo:
                for at in makers.get(todo.pop(), ()):
                    found |= {o.name for o in at.operands if isinstance(o, Symbol)}
                    new = set(registers(at.operands[1:])) - seen
                    seen |= new
                    todo += new
            known[name] = found & arrays.keys()
        return known[name]

    out: dict[int, Array] = {}
    for at in kernel.code:
        found: set[str] = set()
        for operand in at.operands:
            if isinstance(operand, Address) and isinstance(operand.base, Symbol):
                found |= {operand.base.name} & arrays.keys()
            elif isinstance(operand, Address):
                found |= {x for r in registers((operand.base,)) for x in bases(r)}
        if len(found) == 1 and (array := arrays[found.pop()]).size:
            out[at.line] = array
    return out
