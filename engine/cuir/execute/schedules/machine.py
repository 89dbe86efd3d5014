"""One block: its parts, their clocks, and the scheduler that lets them take turns."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any

import numpy as np

from engine.cuir.execute.compiled.code import (
    BRANCH,
    CALL,
    ELECT,
    EXPR,
    JUMP,
    LOOP,
    NEXT,
    OP,
    PART,
    RETURN,
    RUN_ERRORS,
    Block,
    Code,
    Instr,
    Stopped,
    grown,
    in_range,
    in_words,
)  # fmt: skip
from engine.cuir.execute.compiled.program import Program
from engine.cuir.execute.schedules.parts import Frame, Part, Unit
from engine.cuir.execute.state.shared_memory import SharedMemory
from engine.cuir.execute.state.values import RegTile
from engine.cuir.scalar import Env

MAX_BARRIERS = 64
MAX_DECISIONS = 1 << 16  # that are kept for exploration
PACES = (1.0, 1.0, 0.2, 0.02)


class BlockMachine:
    """Runs one block to its end, to a deadlock, or to a stop. See `run`."""

    def __init__(
        self, program: Program, code: Code, env: Env, block: tuple[int, int, int], *,
        threads: int, units: int, shared: int, registers: int, panels: bool,
    ) -> None:  # fmt: skip
        self.program = program
        self.block = block
        self.threads = threads
        self.unit_threads = threads // units
        per_unit = program.schedule.parts
        count = units * per_unit
        self.agents = 3 * count + units + MAX_BARRIERS
        self.async_proxy = program.arch.has("tma") or program.arch.has("wgmma")
        # Tiles in panels start where the launch's shared memory does, rounded up.
        self.lost = program.arch.async_tile - 1 if panels else 0
        self.shared = SharedMemory(
            max(0, shared - self.lost), self.agents, program.float, self.clash, panels=panels
        )
        self.shared.explain = self.explain
        self.shared.ran = lambda part, path, step: bisect_right(
            self.parts[part].ran.get(path, ()), step
        )
        self.parts: list[Part] = []
        self.units: list[Unit] = []
        for u in range(units):
            unit = Unit(u, 3 * count + u, registers)
            self.units.append(unit)
            for local in range(per_unit):
                part = Part(len(self.parts), unit, local, self)
                inner = dict(env)
                inner[PART] = part
                part.frames.append(Frame(code, inner, None, 0))
                unit.parts.append(part)
                self.parts.append(part)
        program.coverage.parts = max(program.coverage.parts, count)
        starve = program.schedule.starve
        # Blocks are numbered from 1.
        self.starved = None if starve is None else (starve + program.block - 1) % count
        self.first_barrier_agent = 3 * count + units
        self.register_pool = 0  # what lower_registers has given back, in registers
        self.barriers: dict[int, Any] = {}
        self.named: dict[int, Any] = {}
        self.words: dict[int, int] = {}  # what the shared words hold, by their offset
        self.claimed = False  # since other blocks last went on
        self.sync_arrived: list[tuple[Part, int, np.ndarray]] = []
        self.sync_known = np.zeros(self.agents, np.int32)
        self.sync_generation = 0
        self.transfers: list[Callable[[], None]] = []
        self.turn = 0
        self.decisions = program.coverage.decisions
        self.random = random.Random(f"{program.schedule.seed}/{program.block}")
        # Random schedules let some parts run far ahead, and bulk copies land early or late.
        self.pace = [self.random.choice(PACES) for _ in range(count + 1)]
        self.deadlocked = False

    # --- scheduling --------------------------------------------------------------------------

    def run(self) -> Iterator[None]:
        """Stops after every claim, so that other blocks may make theirs."""
        while True:
            if self.claimed:
                self.claimed = False
                yield
            able = [
                p for p in self.parts if not p.done and (p.waiting is None or p.waiting.ready())
            ]
            options = len(able) + len(self.transfers)
            if options == 0:
                if not all(p.done for p in self.parts):
                    from engine.cuir.execute.schedules.stuck_ops import deadlock

                    self.deadlocked = True
                    deadlock(self)
                break
            pick = self.choose(able, options)
            if pick < len(able):
                part = able[pick]
                try:
                    self.advance(part)
                except RUN_ERRORS as error:
                    frame = part.frames[-1]
                    path = frame.code.instrs[frame.pc].path
                    kind, message = in_words(error)
                    raise self.program.stop(kind, path, message, part) from error
            else:
                self.transfers.pop(pick - len(able))()
        if not self.deadlocked:
            self.check_collectives()
            self.check_unfinished()

    def choose(self, able: list[Part], options: int) -> int:
        """Who goes on: one of the parts that can, or a bulk copy that lands."""
        if options == 1:
            return 0
        schedule, number = self.program.schedule, len(self.decisions)
        if number < MAX_DECISIONS:
            self.decisions.append(options)
        if schedule.choices is not None:
            return schedule.choices.get(number, 0) % options
        if self.starved is not None:
            return self.without(self.starved, able, options)
        if schedule.seed == 0:
            self.turn += 1
            return self.turn % options
        weights = [self.pace[p.index] for p in able]
        weights += [self.pace[-1]] * len(self.transfers)
        # What `random.choices` draws, without what it does for draws of many.
        sums = list(accumulate(weights))
        return bisect_right(sums, self.random.random() * sums[-1], 0, options - 1)

    def without(self, starved: int, able: list[Part], options: int) -> int:
        """Bulk copies first, then all parts but one in turn, and that one when no other can."""
        if len(able) < options:
            return len(able)
        self.turn += 1
        others = [n for n, part in enumerate(able) if part.index != starved]
        return others[self.turn % len(others)] if others else 0

    def advance(self, part: Part) -> None:
        """Runs `part` until others may have seen what it did, or until it has to wait."""
        program = self.program
        budget = program.limits.max_steps
        if part.waiting is not None:
            done, part.waiting = part.waiting, None
            frame = part.frames[-1]
            instr = frame.code.instrs[frame.pc]
            part.path = instr.path
            self.assign(part, frame, instr, done.finish())
            frame.pc += 1
        while True:
            frame = part.frames[-1]
            instr = frame.code.instrs[frame.pc]
            instr.count += 1
            program.steps += 1
            if program.steps > budget:
                raise program.stop("runaway", instr.path, f"more than {budget} steps", part)
            kind = instr.kind
            env = frame.env
            if kind is EXPR:
                value = instr.fn(env)
                target = instr.target
                if target is not None:
                    if type(value) is RegTile or type(env.get(target)) is RegTile:
                        self.assign(part, frame, instr, value)
                    else:
                        env[target] = value
                frame.pc += 1
            elif kind is OP:
                part.step += 1
                if instr.writes:
                    part.ran.setdefault(instr.path, []).append(part.step)
                value = instr.fn(env)
                if type(value) is Block:
                    part.waiting = value
                    return
                if instr.target is not None:
                    self.assign(part, frame, instr, value)
                frame.pc += 1
                if instr.visible:
                    return
            elif kind is BRANCH:
                frame.pc = frame.pc + 1 if instr.fn(env) else instr.jump
            elif kind is JUMP:
                frame.pc = instr.jump
            elif kind is LOOP:
                start, stop, step = [a(env) for a in instr.args]
                if in_range(start, stop, step, program.paths[instr.path]):
                    frame.loops.append((start, stop, step))
                    env[instr.var] = start
                    frame.pc += 1
                else:
                    part.empty_loops.append(instr.path)
                    frame.pc = instr.jump
            elif kind is NEXT:
                now, stop, step = frame.loops[-1]
                if instr.fn is None:
                    now += step
                else:
                    now = grown(now, instr.fn(env), program.paths[instr.path])
                if (now < stop) if step > 0 else (now > stop):
                    frame.loops[-1] = (now, stop, step)
                    env[instr.var] = now
                    frame.pc = instr.jump
                else:
                    frame.loops.pop()
                    frame.pc += 1
            elif kind is ELECT:
                frame.elected += instr.elected
                frame.pc += 1
            elif kind is CALL:
                self.enter(part, frame, instr)
            elif kind is RETURN:
                result = None if instr.fn is None else instr.fn(env)
                part.frames.pop()
                if not part.frames:
                    part.done = True
                    part.frames.append(frame)
                    return
                caller = part.frames[-1]
                call = caller.code.instrs[caller.pc]
                if call.target is not None:
                    self.assign(part, caller, call, result)
                caller.pc += 1
            else:
                path = program.paths[instr.path]
                raise Stopped(None, path, f"no meaning is known for: {instr.var}")

    def enter(self, part: Part, frame: Frame, instr: Instr) -> None:
        code: Code = instr.fn
        env = frame.env
        inner: Env = {PART: part, "args": env.get("args")}
        inner.update(zip(code.params, [a(env) for a in instr.args], strict=True))
        inner.update(zip(code.consts, [c(env) for c in instr.consts], strict=True))
        part.frames.append(Frame(code, inner, instr.target, frame.elected))

    def assign(self, part: Part, frame: Frame, instr: Instr, value: Any) -> None:
        target = instr.target
        if target is None:
            return
        old = frame.env.get(target)
        if type(old) is RegTile and max(old.held, old.pending) > part.mma_done:
            self.program.report(
                "missing_group_wait", instr.path,
                f"{target} is written while an asynchronous matmul still holds its registers",
                part.index,
            )  # fmt: skip
        if type(value) is RegTile and instr.kind is EXPR:
            value = value.copy(part.step)
        frame.env[target] = value

    # --- findings ----------------------------------------------------------------------------

    def clash(self, kind: str, path: int, other: int, message: str, part: int) -> None:
        if other >= 0:
            message = f"{message} ({self.name(other)})"
        self.program.report(kind, path, message, part, other)

    def name(self, path: int) -> str:
        from engine.cuir.execute.schedules.stuck_ops import op_name

        return op_name(self.program, path)

    def explain(self, part: int, path: int, agent: int, epoch: int) -> bool:
        """Whether an early read is due to a wait for the wrong phase; then that is the finding.

        `agent` and `epoch` name the bulk load that should have landed; epoch 0: nothing was
        written there yet.
        """
        for offset, (where, known, passed) in self.parts[part].waits.items():
            barrier = self.barriers[offset]
            # Nothing written yet: it passed although no phase had ever completed. A thread alone
            # waits so for room, as a loading one does.
            fresh = epoch == 0 and known == 0 and not self.parts[part].elected
            if fresh or (barrier.agent == agent and known < epoch <= passed):
                self.program.report(
                    "wrong_phase", where,
                    "passes before the phase that brings the data has completed "
                    f"({self.name(path)} then reads too early)", part,
                )  # fmt: skip
                return True
        return False

    def collective(self, part: Part) -> None:
        """All parts of a unit must meet the same collectives in the same order."""
        log = part.unit.collectives
        place = part.collective
        part.collective += 1
        if place == len(log):
            log.append(part.path)
        elif log[place] != part.path:
            self.program.report(
                "divergent_collective", part.path,
                f"another warp of the unit is at {self.name(log[place])}", part.index, log[place],
            )  # fmt: skip
        if part.elected:
            self.program.report(
                "divergent_collective", part.path,
                "one elected thread reaches an op for all threads of the unit", part.index,
            )  # fmt: skip

    def check_unfinished(self) -> None:
        """Copies that the block leaves in flight when it ends."""
        report = self.program.report
        for part in self.parts:
            for _, _, path in part.copies:
                report("unfinished_copy", path, "never waited for", part.index)
            if part.clock[part.store_agent] < part.store_committed or part.store_open >= 0:
                report(
                    "unfinished_copy",
                    part.store_path,
                    "the block may end before its source has been read",
                    part.index,
                )
        for barrier in self.barriers.values():
            known = max(int(p.clock[barrier.agent]) for p in self.parts)
            if known < barrier.loads[0]:
                report("unfinished_copy", barrier.loads[1], "nobody waits for its last phase", -1)

    def check_collectives(self) -> None:
        for barrier in self.barriers.values():
            if barrier.arrived:
                barrier.tell_repeated(self)
        for unit in self.units:
            for part in unit.parts:
                if part.collective < len(unit.collectives):
                    self.program.report(
                        "divergent_collective", unit.collectives[part.collective],
                        "only part of the unit's warps reach it", part.index,
                    )  # fmt: skip
