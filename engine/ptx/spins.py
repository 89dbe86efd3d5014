"""Which waits for an mbarrier are loops that nothing but the phase ends."""

from __future__ import annotations

from engine.ptx.syntax import Address, Immediate, Instruction, Kernel, Operand, Register, Symbol
from engine.ptx.syntax import registers as named

WAITS = ("test_wait", "try_wait")
MOST = 64  # instructions from a wait back to it
# What a loop may do besides: it writes registers alone, or passes time.
_SILENT = {"mov", "cvt", "cvta", "selp", "setp", "set", "and", "or", "xor", "not", "add", "sub",
           "mul", "mad", "shl", "shr", "bra", "nanosleep"}  # fmt: skip


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
    for _ in range(MOST):
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
