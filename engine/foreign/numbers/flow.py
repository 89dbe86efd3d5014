"""Which instructions make what others read, in registers: what memory carries is not followed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from engine.foreign.numbers.watched import Part
from engine.ptx.syntax import (
    Address,
    Immediate,
    Instruction,
    Kernel,
    Module,
    Special,
    Symbol,
    registers,
)

_NO_RESULT = {"st", "red", "bra", "ret", "exit", "bar", "trap"}
_ENDS = {"bra", "brx", "ret", "exit", "trap"}


class Flow:
    """A kernel's instructions by number, with those that made what each reads (`made`), and those
    that read what each makes (`read`)."""

    def __init__(self, kernel: Kernel) -> None:
        self.code = kernel.code
        count = len(kernel.code)
        self.made: list[set[int]] = [set() for _ in range(count)]
        self.read: list[set[int]] = [set() for _ in range(count)]
        self.number = {id(at): n for n, at in enumerate(kernel.code)}
        starts = {0, *(n for n in kernel.labels.values() if n < count)}
        starts |= {n + 1 for n, at in enumerate(self.code) if at.name in _ENDS and n + 1 < count}
        first = sorted(starts)
        self.ends = dict(zip(first, [*first[1:], count], strict=True))
        # By the block that begins at a number and a register: what writes it there, in order.
        self.writers: dict[tuple[int, str], list[int]] = {}
        before: dict[int, list[int]] = {n: [] for n in first}
        for start, end in self.ends.items():
            for after in self._after(kernel, end - 1):
                if after in before:
                    before[after].append(start)
            for n in range(start, end):
                for register in _writes(self.code[n]):
                    self.writers.setdefault((start, register), []).append(n)
        for start, end in self.ends.items():
            for n in range(start, end):
                for register in _reads(self.code[n], addresses=True):
                    for by in self._makers(register, n, start, before):
                        self.made[n].add(by)
                        self.read[by].add(n)

    def _after(self, kernel: Kernel, n: int) -> Iterator[int]:
        """Where a basic block that ends with an instruction goes on."""
        at = self.code[n]
        if at.name == "brx":
            names = [x.name for x in at.operands if isinstance(x, Symbol)]
            yield from (kernel.labels[t] for x in names for t in kernel.tables.get(x, ()))
        elif at.name == "bra":
            yield from (kernel.labels[x.name] for x in at.operands if isinstance(x, Symbol))
        if at.name not in _ENDS or at.guard is not None:
            yield n + 1

    def _makers(
        self, register: str, n: int, start: int, before: dict[int, list[int]]
    ) -> Iterator[int]:
        """The instructions whose result a register may hold before the `n`-th."""
        todo, seen = [(start, n)], set()
        while todo:
            start, end = todo.pop()
            there = self.writers.get((start, register), [])
            for by in reversed(there[: bisect_left(there, end)]):
                yield by
                if self.code[by].guard is None:
                    break
            else:
                new = [b for b in before[start] if b not in seen]
                seen.update(new)
                todo += [(b, self.ends[b]) for b in new]

    def reached(self, start: Iterable[int], edges: Sequence[set[int]]) -> set[int]:
        """All that the edges lead to, without the start itself."""
        out: set[int] = set()
        todo = list(start)
        while todo:
            new = edges[todo.pop()] - out
            out |= new
            todo += new
        return out

    def of(self, parts: Sequence[Part]) -> set[int]:
        return {self.number[id(p.at)] for p in parts if id(p.at) in self.number}


def between(
    module: Module, start: Sequence[Part], end: Sequence[Part], known: Sequence[Part]
) -> Iterator[Instruction]:
    """The instructions that compute with what the first parts made, and with what is made of it, up
    to the last parts; without those, up to stores; and the numbers that they begin with. What the
    known parts are made of is none of them: all of their numbers are right."""
    for kernel in module.kernels.values():
        if not any(p.kernel == kernel.name for p in start):
            continue
        flow = Flow(kernel)
        right = flow.of(known)
        sure = right | flow.reached(right, flow.made)
        way = flow.reached(flow.of(start), flow.read)
        last = flow.of(end)
        if last:
            way &= last | flow.reached(last, flow.made)
        way -= sure
        first = {by for n in way for by in flow.made[n] if _constant(kernel.code[by])} - sure
        yield from (kernel.code[n] for n in sorted(way | first)
                    if kernel.code[n].name != "mov" or n in first)  # fmt: skip


def origin(module: Module, at: Instruction) -> list[Instruction]:
    """The instructions that made the address of an access, and whether it is made."""
    for kernel in module.kernels.values():
        if any(at is other for other in kernel.code):
            flow, n = Flow(kernel), next(n for n, x in enumerate(kernel.code) if x is at)
            held = {r for o in at.operands if isinstance(o, Address)
                    for r in registers((o,), addresses=True)}  # fmt: skip
            held |= {at.guard.name} if at.guard is not None else set()
            start = {by for by in flow.made[n] if held & _writes(kernel.code[by])}
            made = start | flow.reached(start, flow.made)
            return [kernel.code[by] for by in sorted(made) if kernel.code[by].name != "mov"
                    or isinstance(kernel.code[by].operands[1], Immediate | Special)]  # fmt: skip
    return []


def values(module: Module, stores: Sequence[Instruction]) -> Iterator[Instruction]:
    """The floating-point instructions that made what these store."""
    for kernel in module.kernels.values():
        ours = [n for n, at in enumerate(kernel.code) if any(at is s for s in stores)]
        if ours:
            made = (flow := Flow(kernel)).reached(ours, flow.made)
            yield from (kernel.code[n] for n in sorted(made) if kernel.code[n].type == "f32"
                        and kernel.code[n].name != "mov")  # fmt: skip


def blocks(module: Module, parts: Sequence[Part]) -> list[Instruction]:
    """Where the kernels that made these parts read their block's number."""
    names = {p.kernel for p in parts}
    return [at for n in names for at in module.kernels[n].code for o in at.operands
            if isinstance(o, Special) and o.name.startswith("%ctaid")]  # fmt: skip


def _reads(at: Instruction, addresses: bool = False) -> set[str]:
    own = at.operands if at.name in _NO_RESULT or at.name == "wgmma" else at.operands[1:]
    out = set(registers(own, addresses))
    return out | ({at.guard.name} if at.guard is not None else set())


def _writes(at: Instruction) -> set[str]:
    return set() if at.name in _NO_RESULT else set(registers(at.operands[:1]))


def _constant(at: Instruction) -> bool:
    return at.name == "mov" and at.type == "f32" and isinstance(at.operands[1], Immediate)
