"""Why a block cannot go on: one finding for each op that it is stuck at."""

from __future__ import annotations

from typing import Any

from engine.cuir.execute.families.run_pipeline import Mbarrier, NamedBarrier
from engine.cuir.nodes import (
    Call,
    Do,
    Expr,
    Index,
    Module,
    Name,
    Path,
    Stmt,
    blocks,
    walk,
)  # fmt: skip
from engine.cuir.printer import cut, first_line


def statement(module: Module, path: Path) -> Stmt | None:
    """The statement that `path` names, or None for a whole function."""
    body = module.function(str(path[0])).body
    found: Stmt | None = None
    for step in path[1:]:
        if isinstance(step, int):
            found = body[step]
        elif found is not None:
            body = dict(blocks(found))[step]
    return found


def op_name(program: Any, path: int) -> str:
    """The op at a path, as its text starts."""
    where = program.paths[path]
    stmt = statement(program.module, where)
    return cut(str(where[0]) if stmt is None else first_line(stmt))


def deadlock(machine: Any) -> None:
    """Reports every part that is stuck, by what it waits for."""
    program = machine.program
    explained = False
    stuck = [p for p in machine.parts if not p.done]
    for part in stuck:
        kind, message = _reason(machine, part)
        path = _stuck_at(part)
        if kind == "wrong_byte_count":
            about = part.waiting.about[0]
            path = about.expected_at if about.expected_at >= 0 else path
        explained |= kind != "deadlock"
        program.report(kind, path, message, part.index)
    for barrier in machine.barriers.values():
        barrier.tell_repeated(machine)


def _stuck_at(part: Any) -> int:
    frame = part.frames[-1]
    return int(frame.code.instrs[frame.pc].path)


def _reason(machine: Any, part: Any) -> tuple[str, str]:
    what, about = part.waiting.what, part.waiting.about
    if what == "waits for all threads of the block":
        others = [p for p in machine.parts if p.waiting is None or p.waiting.what != what]
        where = sorted({"has returned" if p.done else f"is at {machine.name(_stuck_at(p))}"
                        for p in others})  # fmt: skip
        return "divergent_collective", f"not all threads reach it: another part {where[0]}"
    if what.startswith("waits for matmul groups"):
        return "divergent_collective", what
    match about:
        case (Mbarrier() as barrier, int(parity)):
            return _mbarrier(machine, part, barrier, parity)
        case (int(id), NamedBarrier() as barrier, int(threads)):
            return "deadlock", (
                f"named barrier {id} has {barrier.arrived} of {threads} threads and nobody else "
                "can arrive"
            )
        case ("registers", int(n), missing):
            return "registers_over_file", (
                f"{n} registers per thread need {missing()} more registers than the other "
                "warpgroups have given back"
            )
    return "deadlock", what


def _mbarrier(machine: Any, part: Any, barrier: Mbarrier, parity: int) -> tuple[str, str]:
    state = (
        f"phase {barrier.phase}, {barrier.pending} of {barrier.count} arrivals and {barrier.tx} "
        "bytes missing"
    )
    if barrier.tx != 0 and barrier.pending == 0:
        more = "more" if barrier.tx > 0 else "less"
        return "wrong_byte_count", (
            f"the phase was told to expect {abs(barrier.tx)} bytes {more} than its copies bring"
        )
    if 0 < barrier.pending < barrier.count:
        return "lost_arrival", f"the barrier never completes: {state}"
    if not _arrivals_in_text(machine.program.module, machine.program.paths[_stuck_at(part)]):
        return "lost_arrival", f"nothing ever arrives at this barrier: {state}"
    passed = next((seen[2] for offset, seen in part.waits.items()
                   if machine.barriers.get(offset) is barrier), 0)  # fmt: skip
    if barrier.phase > passed:
        return "wrong_phase", (
            f"the phase that its turn is for has completed; it waits for the next one: {state}"
        )
    idle = [p for p in machine.parts if p.empty_loops]
    if idle:
        loop = machine.name(idle[0].empty_loops[-1])
        return "row_without_tiles", (
            f"the barrier is unbalanced when a loop runs no time ({loop}): {state}"
        )
    if barrier.phase == 0 and parity == 0 and not barrier.arrived:
        return "wrong_phase", (
            "waits for phase 0 of a barrier on which nobody can arrive before this part goes on; "
            f"parity 1 passes at the start: {state}"
        )
    return "deadlock", f"nobody can arrive any more: {state}"


def _arrivals_in_text(module: Module, path: Path) -> bool:
    """Whether any op arrives at a barrier of the name that this wait uses."""
    stmt = statement(module, path)
    if not isinstance(stmt, Do) or not stmt.call.args:
        return True
    base = _base(stmt.call.args[0])
    if base is None:
        return True
    for where, other in walk(module):
        if where[0] == path[0] and isinstance(other, Do) and isinstance(other.call, Call):
            call = other.call
            if call.fn in ("arrive", "arrive_expect") and call.args and _base(call.args[0]) == base:
                return True
    return False


def _base(expr: Expr) -> str | None:
    match expr:
        case Index(Name(id), _) | Name(id):
            return id
    return None
