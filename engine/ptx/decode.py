"""Instructions to functions that execute them for a selection of lanes.

The families in `isa` each hold a table from an instruction's name to its decoder. A decoder takes
every modifier that it knows by name and refuses the rest: an ignored modifier is a wrong result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from engine.errors import InputError
from engine.ptx.lanes import Bools, Lanes
from engine.ptx.machine import Exit, Jump, Machine, Outcome, Park, Run
from engine.ptx.registers import Fetch, Registers, Store, Values
from engine.ptx.syntax import (
    WIDTHS,
    Address,
    Instruction,
    Operand,
    Register,
    Symbol,
    Vector,
    registers,
)  # fmt: skip

Decoder = Callable[["Site"], Run]


class Site:
    """One instruction in one machine, the `place`-th of the kernel: what its decoder reads operands
    and modifiers from."""

    def __init__(self, machine: Machine, at: Instruction, place: int) -> None:
        self.machine, self.at, self.place = machine, at, place
        self.registers: Registers = machine.registers

    @property
    def type(self) -> str:
        return self.at.type

    def refuse(self, words: str) -> InputError:
        return self.at.refused(words)

    def takes(self, *modifiers: str | Iterable[str]) -> None:
        """Refuses an instruction with a modifier that is not among these or a type."""
        known: set[str] = set()
        for m in modifiers:
            known |= {m} if isinstance(m, str) else set(m)
        for m in self.at.modifiers:
            if m not in known and m not in WIDTHS:
                raise self.refuse(f"the modifier .{m} is not executed yet")

    def one(self, *choices: str) -> str:
        """The one of these modifiers that the instruction has."""
        found = [m for m in self.at.modifiers if m in choices]
        if len(found) != 1:
            raise self.refuse(f"one of {', '.join('.' + c for c in choices)} is needed")
        return found[0]

    def operand(self, k: int) -> Operand:
        if k >= len(self.at.operands):
            raise self.refuse(f"operand {k + 1} is missing")
        return self.at.operands[k]

    def count(self, *allowed: int) -> int:
        n = len(self.at.operands)
        if n not in allowed:
            raise self.refuse(f"{n} operands are not executed yet")
        return n

    def fetch(self, k: int, type: str = "") -> Fetch:
        return self.registers.fetch(self.operand(k), type or self.type, self.at)

    def store(self, k: int = 0, type: str = "") -> Store:
        return self.registers.store(self.operand(k), type or self.type, self.at)

    def items(self, k: int) -> tuple[Operand, ...]:
        """The registers of a vector operand; a plain one is a vector of one."""
        operand = self.operand(k)
        return operand.items if isinstance(operand, Vector) else (operand,)

    def fetches(self, k: int, type: str) -> list[Fetch]:
        return [self.registers.fetch(o, type, self.at) for o in self.items(k)]

    def stores(self, k: int, type: str) -> list[Store]:
        return [self.registers.store(o, type, self.at) for o in self.items(k)]

    def address(self, k: int, type: str = "u64") -> Fetch:
        """The address of an operand `[base + offset]`: [2, lanes] of 64 bits."""
        operand = self.operand(k)
        if not isinstance(operand, Address):
            raise self.refuse("an address is needed")
        offset = operand.offset
        base = operand.base
        if isinstance(base, Symbol):
            place = self.machine.symbols.get(base.name)
            if place is None:
                raise self.refuse(f"{base.name} is not known")
            constant = self.registers.constant(place + offset, "u64")
            return lambda lanes: constant[:, : len(lanes)]
        wide = (
            "u64"
            if not isinstance(base, Register) or self.registers.width(base.name) == 8
            else "u32"
        )
        fetch = self.registers.fetch(base, wide, self.at)
        if wide == "u32":
            return lambda lanes: fetch(lanes).astype("i8") + offset
        return lambda lanes: fetch(lanes).view("i8") + offset


def decode(
    machine: Machine, families: Iterable[dict[str, Decoder]], pure: frozenset[str]
) -> list[Run]:
    """The functions of all instructions of the machine's kernel.

    Args:
        pure: the names of instructions that do nothing but write registers.

    Raises:
        InputError: at the first instruction that is not executed yet, with its source line.
    """
    table: dict[str, Decoder] = {}
    for family in families:
        table |= family
    out: list[Run] = []
    for place, at in enumerate(machine.kernel.code):
        site = Site(machine, at, place)
        decoder = table.get(at.name)
        if decoder is None:
            raise site.refuse("this instruction is not executed yet")
        run = machine.matmuls.fragments.watch(at, decoder(site))
        if at.guard is not None:
            if at.name in ("bra", "brx"):
                run = _branch(site, run, _passed_over(machine, place, pure), out)
            else:
                run = guarded(site, run)
        out.append(run)
    return out


def _predicate(site: Site) -> Callable[[Lanes], Values]:
    guard = site.at.guard
    assert guard is not None
    fetch = site.registers.fetch(guard, "pred", site.at)
    memory = site.machine.memory

    def taken(lanes: Lanes) -> Values:
        return memory.same(fetch(lanes), lanes, site.at, "a branch")

    return taken


def guarded(site: Site, run: Run) -> Run:
    """Executes for the lanes whose guard holds."""
    taken = _predicate(site)

    def guard(lanes: Lanes) -> Outcome | None:
        mask = taken(lanes)
        inner = lanes.where(mask)
        if inner is None:
            return None
        outcome = run(inner)
        if outcome is None or inner is lanes:
            return outcome
        full = mask.copy()
        if isinstance(outcome, Park):
            full[mask] = outcome.waiting
            inside = iter(outcome.keys)
            keys = [next(inside) if m else () for m in mask]
            return Park(full, keys, outcome.again, outcome.undone)
        if isinstance(outcome, Exit):
            return Exit(full)
        raise site.refuse("a guard is not executed yet here")

    return guard


def _passed_over(machine: Machine, place: int, pure: frozenset[str]) -> range:
    """The instructions that a branch passes over, where they write registers alone and nothing
    else leads to them: ptxas makes such a branch a choice of values."""
    at, kernel = machine.kernel.code[place], machine.kernel
    target = at.operands[0] if at.operands else None
    end = kernel.labels.get(target.name, 0) if isinstance(target, Symbol) else 0
    over = range(place + 1, end)
    led_to = any(p in over for p in kernel.labels.values())
    return range(0) if led_to or any(kernel.code[k].name not in pure for k in over) else over


def _choose(
    machine: Machine, lanes: Lanes, differs: Bools, passed: Values, over: range, code: list[Run]
) -> None:
    """Executes what some lanes pass over in one world and not in the other.

    Args:
        differs: these lanes.
        passed: [2, lanes], in which world each passes it over.
    """
    inner = lanes.where(differs)
    assert inner is not None
    written = {n for k in over for n in registers(machine.kernel.code[k].operands[:1])}
    arrays = [machine.registers.array(name) for name in written]
    before = [array[inner.at].copy() for array in arrays]
    for k in over:
        code[k](inner)
    keep = passed[:, differs]
    for array, old in zip(arrays, before, strict=True):
        mask = keep.reshape(*keep.shape, *[1] * (old.ndim - 2))
        array[inner.at] = np.where(mask, old, array[inner.at])


def _branch(site: Site, run: Run, over: range, code: list[Run]) -> Run:
    """A branch whose guard says who takes it.

    Args:
        over: what it passes over, where that writes registers alone.
        code: of the whole kernel, when it runs.
    """
    taken = _predicate(site)
    guard, machine = site.at.guard, site.machine
    assert guard is not None
    fetch = site.registers.fetch(guard, "pred", site.at)

    def branch(lanes: Lanes) -> Outcome | None:
        if over:
            passed = fetch(lanes)
            differs = passed[0] != passed[1]
            if np.count_nonzero(differs):
                _choose(machine, lanes, differs, passed, over, code)
                outcome = run(lanes)
                assert isinstance(outcome, Jump)
                return Jump(passed[0] | differs, outcome.target)
        mask = taken(lanes)
        if not mask.any():
            return None
        outcome = run(lanes)
        if isinstance(outcome, Jump):
            return Jump(mask, outcome.target)
        raise site.refuse("a guard is not executed yet here")

    return branch
