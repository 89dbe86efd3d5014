"""Which instructions make what others read: in registers, and in memory as far as a run saw it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence

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
_LEAVES = {"ret", "exit", "trap"}
_ENDS = {"bra", "brx", *_LEAVES}
Carried = Mapping[int, frozenset[int]]  # `Outcome.carried`


class Flow:
    """A kernel's instructions by number, with those that made what each reads (`made`), and those
    that read what each makes (`read`); through memory where it is told what memory `carried`."""

    def __init__(self, kernel: Kernel, carried: Carried | None = None) -> None:
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
        self.before: dict[int, list[int]] = {n: [] for n in first}
        for start, end in self.ends.items():
            for after in self._after(kernel, end - 1):
                if after in self.before:
                    self.before[after].append(start)
            for n in range(start, end):
                for register in _writes(self.code[n]):
                    self.writers.setdefault((start, register), []).append(n)
        for start, end in self.ends.items():
            for n in range(start, end):
                for register in _reads(self.code[n], addresses=True):
                    for by in self._makers(register, n, start):
                        self.made[n].add(by)
                        self.read[by].add(n)
        lines = {at.line: n for n, at in enumerate(kernel.code)}
        for line, stores in (carried or {}).items():
            for store in stores & lines.keys() if line in lines else ():
                self.made[lines[line]].add(lines[store])
                self.read[lines[store]].add(lines[line])

    def deciding(self, number: int) -> set[int]:
        """The branches by which threads come to an instruction or not, with those that decide of
        these (control dependence: Ferrante, Ottenstein, Warren 1987)."""
        found: set[int] = set()
        todo = [number]
        while todo:
            new = set(self._deciding(todo.pop())) - found
            found |= new
            todo += new
        return found

    def _deciding(self, number: int) -> Iterator[int]:
        """The branches one way of which leads to an instruction, whatever comes, another not."""
        here = max(start for start in self.ends if start <= number)
        last = {start: self.code[end - 1] for start, end in self.ends.items()}
        free = {start for start, at in last.items() if at.name in _LEAVES} - {here}
        todo = list(free)
        while todo:
            new = [b for b in self.before[todo.pop()] if b not in free and b != here]
            free.update(new)
            todo += new
        for start, at in last.items():
            ways = {after in free for after, comes in self.before.items() if start in comes}
            ways |= {True} if at.name in _LEAVES else set()
            if len(ways) == 2:
                yield self.ends[start] - 1

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

    def _makers(self, register: str, n: int, start: int) -> Iterator[int]:
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
                new = [b for b in self.before[start] if b not in seen]
                seen.update(new)
                todo += [(b, self.ends[b]) for b in new]

    def reached(self, start: Iterable[int], edges: Sequence[set[int]]) -> set[int]:
        """All that the edges lead to, without the start itself."""
        return set(self.nearest(start, edges))

    def nearest(self, start: Iterable[int], edges: Sequence[set[int]]) -> dict[int, None]:
        """The same, the nearest first."""
        out: dict[int, None] = {}
        todo = list(start)
        for number in todo:
            new = sorted(edges[number] - out.keys())
            out |= dict.fromkeys(new)
            todo += new
        return out

    def of(self, parts: Sequence[Part]) -> set[int]:
        return {self.number[id(p.at)] for p in parts if id(p.at) in self.number}


def between(
    module: Module, start: Sequence[Part], end: Sequence[Part], known: Sequence[Part],
    carried: Carried,
) -> Iterator[Instruction]:  # fmt: skip
    """The instructions that compute with what the first parts made, and with what is made of it, up
    to the last parts; without those, up to stores; and the numbers that they begin with. What the
    known parts are made of is none of them: all of their numbers are right."""
    for kernel in module.kernels.values():
        if not any(p.kernel == kernel.name for p in start):
            continue
        flow = Flow(kernel, carried)
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


def origin(module: Module, ats: Sequence[Instruction]) -> list[Instruction]:
    """Of accesses of one kernel the instructions that made their addresses, of selects their
    conditions, and of all whether they are executed; the nearest first."""
    kernel = holding(module, ats[0])
    if kernel is None:
        return []
    flow = Flow(kernel)
    start = {by for at in ats for by in sorted(flow.made[flow.number[id(at)]])
             if _deciders(at) & _writes(kernel.code[by])}  # fmt: skip
    return _telling(kernel, dict.fromkeys(start) | flow.nearest(start, flow.made))


def _deciders(at: Instruction) -> set[str]:
    held = at.operands[3:] if at.name == "selp" else ()
    held += tuple(o for o in at.operands if isinstance(o, Address))
    return set(registers(held, addresses=True)) | ({at.guard.name} if at.guard else set())


def holding(module: Module, at: Instruction) -> Kernel | None:
    """The kernel that an instruction is of."""
    return next((k for k in module.kernels.values() if any(at is x for x in k.code)), None)


def _telling(kernel: Kernel, made: Iterable[int]) -> list[Instruction]:
    """Instructions by number, without those that move a register to another one."""
    return [kernel.code[by] for by in made if kernel.code[by].name != "mov"
            or isinstance(kernel.code[by].operands[1], Immediate | Special)]  # fmt: skip


def reached_by(module: Module, at: Instruction) -> list[Instruction]:
    """The instructions that make the conditions by which threads come to an instruction."""
    kernel = holding(module, at)
    if kernel is None:
        return []
    flow = Flow(kernel)
    start = flow.deciding(flow.number[id(at)])
    return _telling(kernel, flow.nearest(start, flow.made))


def beside(module: Module, load: Instruction, carried: Carried) -> list[Instruction]:
    """What wrote that which the loads of a load's line read elsewhere, or at another time."""
    kernel = holding(module, load)
    if kernel is None:
        return []
    lines = {line for at in kernel.code if str(at.source) == str(load.source)
             for line in carried.get(at.line, ())}  # fmt: skip
    return [at for at in kernel.code if at.line in lines]


def values(
    module: Module, stores: Sequence[Instruction], known: Sequence[Part], carried: Carried
) -> Iterator[Instruction]:
    """The floating-point instructions that made what these store, without those of the known parts
    and what these are made of."""
    for kernel in module.kernels.values():
        ours = [n for n, at in enumerate(kernel.code) if any(at is s for s in stores)]
        if ours:
            flow = Flow(kernel, carried)
            right = flow.of(known)
            made = flow.reached(ours, flow.made) - right - flow.reached(right, flow.made)
            code = (kernel.code[n] for n in sorted(made))
            yield from (at for at in code if at.type == "f32" and at.name != "mov"
                        and not at.has("param"))  # fmt: skip


def blocks(module: Module, parts: Sequence[Part]) -> list[Instruction]:
    """Where the kernels that made these parts read their block's number."""
    names = {p.kernel for p in parts}
    return [at for n in names for at in module.kernels[n].code for o in at.operands
            if isinstance(o, Special) and o.name.startswith("%ctaid")]  # fmt: skip


def _reads(at: Instruction, addresses: bool = False) -> set[str]:
    own = at.operands if not _has_result(at) or at.name == "wgmma" else at.operands[1:]
    out = set(registers(own, addresses))
    return out | ({at.guard.name} if at.guard is not None else set())


def _writes(at: Instruction) -> set[str]:
    return set(registers(at.operands[:1])) if _has_result(at) else set()


def _has_result(at: Instruction) -> bool:
    return at.name not in _NO_RESULT and not isinstance(next(iter(at.operands), None), Address)


def _constant(at: Instruction) -> bool:
    return at.name == "mov" and at.type == "f32" and isinstance(at.operands[1], Immediate)
