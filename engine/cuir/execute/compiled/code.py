"""Functions of a module as flat code: a list of instructions with jumps.

A part of a block is a stack of frames over this code, so the scheduler can stop it anywhere
without threads. Expressions are closures (engine.cuir.scalar), ops are sites (site.py).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any

from engine.cuir.findings import Finding
from engine.cuir.functions import TooWide
from engine.cuir.nodes import Function, Path
from engine.cuir.scalar import Env, Fn
from engine.errors import CuirError

PART = "$part"  # the executing part, in every environment of device and host code
SUCCESS = 0


class Kind(IntEnum):
    EXPR = 0
    OP = 1
    CALL = 2
    JUMP = 3
    BRANCH = 4
    LOOP = 5
    NEXT = 6
    ELECT = 7
    RETURN = 8
    OPAQUE = 9


# By name: to look a member up in its class takes longer than many an instruction.
EXPR, OP, CALL, JUMP, BRANCH, LOOP, NEXT, ELECT, RETURN, OPAQUE = Kind


class Instr:
    """One instruction; what the fields mean depends on `kind`."""

    __slots__ = (
        "args", "consts", "count", "elected", "fn", "jump", "kind", "path", "site", "target", "var",
        "visible", "writes",
    )  # fmt: skip

    def __init__(self, kind: Kind, path: int) -> None:
        self.kind = kind
        self.path = path
        self.target: str | None = None
        self.fn: Any = None
        self.site: Any = None
        self.jump = -1
        self.var = ""
        self.args: list[Fn] = []
        self.consts: list[Fn] = []
        self.visible = False
        self.writes = False  # shared memory
        self.elected = 0
        self.count = 0


class Code:
    """A compiled function."""

    __slots__ = ("consts", "function", "instrs", "names", "option_fns", "params")

    def __init__(self, function: Function) -> None:
        self.function = function
        self.params = tuple(p.name for p in function.params)
        self.consts = function.consts
        self.instrs: list[Instr] = []
        self.names: frozenset[str] = frozenset()
        self.option_fns: list[tuple[str, Fn]] = []

    def options(self, env: Env) -> list[tuple[str, Any]]:
        """The decorator's keywords for these constants: threads, min_blocks."""
        return [(name, fn(env)) for name, fn in self.option_fns]


class Stopped(Exception):
    """The run cannot go on: a finding at an op, or an opaque op without a meaning."""

    def __init__(self, finding: Finding | None, path: Path, reason: str) -> None:
        self.finding = finding
        self.path = path
        self.reason = reason
        super().__init__(reason)


class Block:
    """An op that cannot finish yet: `ready` says when it can, `finish` then does the rest."""

    __slots__ = ("about", "finish", "ready", "what")

    def __init__(
        self, ready: Callable[[], bool], finish: Callable[[], Any], what: str, about: Any = None
    ) -> None:
        self.ready = ready
        self.finish = finish
        self.what = what
        self.about = about


# What values that only the run knows can bring about; everything else is a bug of ours.
RUN_ERRORS = (
    ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError, CuirError,
)  # fmt: skip


def in_words(error: Exception) -> tuple[str, str]:
    """The kind of finding and the message for an error that an op or expression met."""
    if isinstance(error, ZeroDivisionError):
        return "bad_value", "division by zero"
    if isinstance(error, TooWide):
        return "bad_value", error.message
    if isinstance(error, KeyError):
        return "unknown_name", f"{error.args[0]} has no value here"
    text = str(error).split("\n")[0]
    return "type_mismatch", f"cannot be executed: {text or type(error).__name__}"


def grown(now: int, value: Any, path: Path) -> int:
    """The next value of a loop that takes it from a name. Raises `Stopped` unless it is above
    `now`, so that every such loop ends."""
    if type(value) is int and value > now:
        return value
    text = f"the loop's next value is {value}, and it must be a whole number above {now}"
    raise Stopped(Finding("bad_value", path, text), path, text)


def in_range(start: int, stop: int, step: int, path: Path) -> bool:
    """Whether a loop runs at all. Raises `Stopped` for a step of zero."""
    if step == 0:
        raise Stopped(Finding("bad_value", path, "a loop with a step of 0"), path, "step of 0")
    return start < stop if step > 0 else start > stop
