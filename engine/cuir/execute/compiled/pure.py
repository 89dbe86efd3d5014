"""Functions that never wait: scalar device functions, and the host."""

from __future__ import annotations

from typing import Any

from engine.cuir.execute.compiled.code import (
    BRANCH,
    CALL,
    EXPR,
    JUMP,
    LOOP,
    NEXT,
    OP,
    OPAQUE,
    PART,
    RETURN,
    RUN_ERRORS,
    Code,
    Stopped,
    grown,
    in_range,
    in_words,
)
from engine.cuir.findings import Finding
from engine.cuir.nodes import Path
from engine.cuir.scalar import Env

MOST_STEPS = 10_000_000  # past them a function is said not to return
PC = "$pc"  # the instruction being run, in the environment


def run_pure(code: Code, env: Env, paths: list[Path]) -> Any:
    """Runs a function that never waits to its return."""
    try:
        return _run(code, env, paths)
    except RUN_ERRORS as error:
        path = paths[env[PC].path]
        kind, message = in_words(error)
        raise Stopped(Finding(kind, path, message), path, message) from error


def _run(code: Code, env: Env, paths: list[Path]) -> Any:
    instrs = code.instrs
    pc = 0
    loops: list[tuple[int, int, int]] = []
    for _ in range(MOST_STEPS):
        instr = env[PC] = instrs[pc]
        instr.count += 1
        kind = instr.kind
        if kind is EXPR or kind is OP:
            value = instr.fn(env)
            if instr.target is not None:
                env[instr.target] = value
            pc += 1
        elif kind is CALL:
            inner: Env = {PART: env.get(PART), "args": env.get("args")}
            inner.update(zip(instr.fn.params, [a(env) for a in instr.args], strict=True))
            inner.update(zip(instr.fn.consts, [c(env) for c in instr.consts], strict=True))
            value = run_pure(instr.fn, inner, paths)
            if instr.target is not None:
                env[instr.target] = value
            pc += 1
        elif kind is OPAQUE:
            raise Stopped(None, paths[instr.path], f"no meaning is known for: {instr.var}")
        elif kind is RETURN:
            return None if instr.fn is None else instr.fn(env)
        elif kind is BRANCH:
            pc = pc + 1 if instr.fn(env) else instr.jump
        elif kind is JUMP:
            pc = instr.jump
        elif kind is LOOP:
            start, stop, step = (a(env) for a in instr.args)
            if not in_range(start, stop, step, paths[instr.path]):
                pc = instr.jump
                continue
            loops.append((start, stop, step))
            env[instr.var] = start
            pc += 1
        elif kind is NEXT:
            now, stop, step = loops[-1]
            if instr.fn is None:
                now += step
            else:
                now = grown(now, instr.fn(env), paths[instr.path])
            if (now < stop) if step > 0 else (now > stop):
                loops[-1] = (now, stop, step)
                env[instr.var] = now
                pc = instr.jump
            else:
                loops.pop()
                pc += 1
        else:
            pc += 1
    path = paths[code.instrs[0].path]
    raise Stopped(Finding("runaway", path, "a function that does not return"), path, "no return")
