"""mbarrier instructions (PTX ISA, "Parallel Synchronization: mbarrier")."""

from __future__ import annotations

import numpy as np

from engine.ptx.decode import Decoder, Site
from engine.ptx.isa.data import ORDER, SPACES
from engine.ptx.lanes import Lanes
from engine.ptx.machine import Outcome, Run
from engine.ptx.mbarriers import MBarriers
from engine.ptx.syntax import Address, Immediate, Instruction, Kernel, Operand, Register, Symbol
from engine.ptx.syntax import registers as named

WAITS = ("test_wait", "try_wait")
MOST_BETWEEN = 64  # instructions from a wait back to it
# What a loop may do besides: it writes registers alone, or passes time.
_SILENT = {"mov", "cvt", "cvta", "selp", "setp", "set", "and", "or", "xor", "not", "add", "sub",
           "mul", "mad", "shl", "shr", "bra", "nanosleep"}  # fmt: skip


def _mbarrier(site: Site) -> Run:
    site.takes("init", "inval", "arrive", "arrive_drop", "expect_tx", "test_wait", "try_wait",
               "parity", "noComplete", SPACES, ORDER)  # fmt: skip
    at = site.at
    if at.has("init"):
        return _init(site)
    if at.has("inval"):
        address = site.address(0)
        return lambda lanes: _all(site).inval(lanes, address(lanes), at)
    if at.has("test_wait") or at.has("try_wait"):
        return _wait(site)
    if at.has("arrive") or at.has("arrive_drop"):
        return _arrive(site)
    if at.has("expect_tx"):
        address, count = site.address(0), site.fetch(1, "u32")
        same = site.machine.memory.same

        def expect(lanes: Lanes) -> None:
            amount = same(count(lanes), lanes, at, "a number of bytes").astype(np.int64)
            _all(site).arrive(lanes, address(lanes), None, amount, at)

        return expect
    raise site.refuse("this use of an mbarrier is not executed yet")


def _all(site: Site) -> MBarriers:
    found: MBarriers = site.machine.mbarriers
    return found


def _init(site: Site) -> Run:
    address, count = site.address(0), site.fetch(1, "u32")
    at, same = site.at, site.machine.memory.same

    def init(lanes: Lanes) -> None:
        _all(site).init(lanes, address(lanes), same(count(lanes), lanes, at, "a count"), at)

    return init


def _arrive(site: Site) -> Run:
    """An arrival. Its state, which the ISA leaves opaque, is the number of its phase."""
    address, put = site.address(1), site.store(0, "b64")
    expect, drops = site.at.has("expect_tx"), site.at.has("arrive_drop")
    amount = site.fetch(2, "u32") if len(site.at.operands) > 2 else None
    at, same = site.at, site.machine.memory.same

    def arrive(lanes: Lanes) -> None:
        one = np.ones(len(lanes), np.int64)
        given = one
        if amount is not None:
            given = same(amount(lanes), lanes, at, "a count").astype(np.int64)
        count, tx = (one, given) if expect else (given, None)
        phases = _all(site).arrive(lanes, address(lanes), count, tx, at, drops)
        put(lanes, np.broadcast_to(phases, (2, len(lanes))))

    return arrive


def _wait(site: Site) -> Run:
    """Waits never block, or for a time alone (PTX ISA, "mbarrier.test_wait, mbarrier.try_wait").

    One that is made again until it is successful (`spins`) parks its threads until the phase is
    complete. Where nothing else can go on, that ends without success: a loop that waits for
    something else meanwhile goes on, and one that does not is a deadlock. Any other wait is without
    success once where it may be.
    """
    by_parity = site.at.has("parity")
    address, phase = site.address(1), site.fetch(2, "u32" if by_parity else "u64")
    what = "a parity" if by_parity else "an mbarrier's state"
    put = site.store(0, "pred")
    at, machine = site.at, site.machine
    again = spins(machine.kernel, site.place)

    def wait(lanes: Lanes) -> Outcome | None:
        where = address(lanes)
        wanted = machine.memory.same(phase(lanes), lanes, at, what)
        failed = None if again else _all(site).fail(lanes, where, wanted, by_parity, at)
        done = _all(site).test(lanes, where, wanted, by_parity, at, failed)
        waiting = ~done if failed is None else ~(done | failed)
        if waiting.any() and machine.timed_out:
            late = np.isin(lanes.threads, list(machine.timed_out))
            machine.timed_out = machine.timed_out - {int(t) for t in lanes.threads[late]}
            waiting &= ~late
        put(lanes, np.broadcast_to(done, (2, len(lanes))))
        if waiting.any():
            return _all(site).park(lanes, waiting, where, at)
        return None

    return wait


def spins(kernel: Kernel, place: int, others: bool = True) -> bool:
    """Whether a wait that was not successful is made again before anything else is done: by
    itself, or by another one of the same operands that does (a token that is asked for first).

    Args:
        place: of the wait among the kernel's instructions.
        others: whether it may be another one.
    """
    wait = kernel.code[place]
    known: dict[str, int] = dict.fromkeys(named(wait.operands[:1]), 0)
    asked = set(named(wait.operands[1:3], addresses=True))
    pc = place + 1
    for _ in range(MOST_BETWEEN):
        if pc >= len(kernel.code):
            return False
        at = kernel.code[pc]
        if at.name == "mbarrier" and any(map(at.has, WAITS)) and at.guard is None:
            if pc == place:
                return True
            same = at.operands[1:3] == wait.operands[1:3]
            return others and same and spins(kernel, pc, others=False)
        if at.name not in _SILENT:
            return False
        taken = True
        if at.guard is not None:
            held = known.get(at.guard.name)
            if held is None:
                return False
            taken = bool(held) != at.guard.negated
        pc += 1
        if not taken:
            continue
        if at.name == "bra":
            target = at.operands[0]
            assert isinstance(target, Symbol)
            pc = kernel.labels[target.name]
            continue
        written = set(named(at.operands[:1]))
        value = _value(at, known)
        for name in written:
            known.pop(name, None)
            if value is not None:
                known[name] = value
        if written & asked:
            return False
    return False


def _value(at: Instruction, known: dict[str, int]) -> int | None:
    """What an instruction makes of what is known; None: nothing that is."""

    def of(operand: Operand) -> int | None:
        if isinstance(operand, Register):
            held = known.get(operand.name)
            return held if held is None or not operand.negated else int(not held)
        return operand.value if isinstance(operand, Immediate) else None

    operands = [of(o) for o in at.operands[1:]]
    if at.name == "selp" and operands[2] is not None:
        return operands[0] if operands[2] else operands[1]
    if None in operands or any(isinstance(o, Address) for o in at.operands):
        return None
    values = [o for o in operands if o is not None]
    match at.name, len(values):
        case ("mov" | "cvt", 1):
            return values[0]
        case ("and", 2):
            return values[0] & values[1]
        case ("or", 2):
            return values[0] | values[1]
        case ("xor", 2):
            return values[0] ^ values[1]
        case ("not", 1) if at.type == "pred":
            return int(not values[0])
        case ("setp", 2) if at.has("eq") or at.has("ne"):
            return int((values[0] == values[1]) == at.has("eq"))
    return None


OPS: dict[str, Decoder] = {"mbarrier": _mbarrier}
