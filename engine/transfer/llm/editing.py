"""Edits from a model: what an answer proposes is applied, checked, and judged by the gates."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from engine.cuir.nodes import Module, Path, blocks
from engine.cuir.printer import print_stmts
from engine.cuir.rewrite import get
from engine.cuir.static.check import check
from engine.errors import CuBridgeError
from engine.lower.spelling.free_hand import spelled
from engine.lower.spelling.legal import legal
from engine.transfer.binding import Binding
from engine.transfer.llm.answer import (
    AnswerError,
    AnswerRefused,
    NothingProposed,
    read_answer,
    shortened,
)
from engine.transfer.llm.apply import apply_answer
from engine.transfer.llm.bind import bind, scratch_of
from engine.transfer.llm.guards import refuse_names, refuse_tricks
from engine.transfer.llm.loop import Attempt
from engine.transfer.llm.outcome import Outcome, Reached
from engine.transfer.llm.prompt import Task

ASKED = "the complete edit of the base module above (not of your last answer)"


@dataclass(frozen=True, slots=True)
class Edit:
    """An answer that became a module, with the model's own reason."""

    module: Module
    binding: Binding
    words: str = ""


Gates = Callable[[Module, Binding], Outcome[Edit]]
"""What the gates say of a module: passed, or the first thing wrong, at an op's path."""


_STAGES: Mapping[Reached, str] = {
    Reached.UNREADABLE: "It could not be applied:",
    Reached.REFUSED: "It was refused:",
    Reached.UNSOUND: "It applies, but the checks of the module find:",
    Reached.G2: "It runs, but it does not compute the person's function (gate G2):",
    Reached.UNMET: (
        "It computes the person's function (gate G2 passed), but not all that was asked is there:"
    ),
    Reached.LOWERING: "It computes the person's function (gate G2 passed), but gate G3 fails:",
}


def judge_edit(task: Task, gates: Gates) -> Callable[[str], Outcome[Edit]]:
    """What the text of an answer comes to."""

    def judge(text: str) -> Outcome[Edit]:
        out = _judged(text, task, gates)
        shown = "" if out.value is None else _op_text(out.value.module, out.op)
        return replace(out, stage=_STAGES.get(out.reached, ""), shown=shown)

    return judge


def _judged(text: str, task: Task, gates: Gates) -> Outcome[Edit]:
    try:
        answer = read_answer(text)
        module = spelled(apply_answer(answer, task.base, task.ids))
        scratch = frozenset(s.field for s in scratch_of(answer.bind, task.interface))
        refuse_names(task.base, module)
        refuse_tricks(task.base, module, spec_numbers(task.spec_text), scratch)
        binding = bind(task.base, module, task.interface, answer.bind)
    except AnswerRefused as error:
        return Outcome(Reached.REFUSED, error.message)
    except AnswerError as error:
        nothing = isinstance(error, NothingProposed)
        return Outcome(Reached.UNREADABLE, error.message, nothing=nothing)
    except CuBridgeError as error:
        return Outcome(Reached.UNREADABLE, shortened(str(error)))
    except RecursionError:
        return Outcome(Reached.REFUSED, "the edit nests too deeply to read")
    made = Edit(module, binding, answer.reason)
    try:
        # The static checks first: they read the text as the model wrote it.
        findings = check(module)
        if findings:
            first = findings[0]
            reason = shortened(f"{first.kind}: {first.message}")
            op = "/".join(map(str, first.path))
            return Outcome(Reached.UNSOUND, reason, op, value=made)
        made = replace(made, module=legal(module))
    except CuBridgeError as error:
        return Outcome(Reached.UNSOUND, shortened(str(error)), value=made)
    except Exception as error:  # a text that nobody thought of must not end the session
        reason = f"the checks cannot read the module ({type(error).__name__}: {error})"
        return Outcome(Reached.UNSOUND, reason, value=made)
    return replace(gates(made.module, binding), value=made)


def spec_numbers(text: str) -> frozenset[int]:
    """The integers that a spec's file names: sizes may be compared with these."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()
    found = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)}
    return frozenset(int(v) for v in found if isinstance(v, int) and not isinstance(v, bool))


def best(attempts: Sequence[Attempt[Edit]]) -> Attempt[Edit] | None:
    """The attempt that got furthest, of those that became a module; among equals the later round,
    which answers what was said of the one before.

    Among those that G2 judged, one that ran more of the deck got further; among those that passed,
    one that is predicted to be faster.
    """
    made = [a for a in attempts if a.outcome.value is not None and a.reached >= Reached.G2]

    def got(a: Attempt[Edit]) -> tuple[float, ...]:
        return a.reached, _runs(a.outcome), -_us(a.outcome), a.round

    return max(made, key=got, default=None)


def _us(outcome: Outcome[Edit]) -> float:
    return math.inf if outcome.microseconds is None else outcome.microseconds


def _runs(outcome: Outcome[Edit]) -> int:
    runs = outcome.details.get("runs")
    return len(runs) if isinstance(runs, list) else 0


def _op_text(module: Module, op: str) -> str:
    """The statement that an op's path names, as the model wrote it; empty for no path."""
    if not op:
        return ""
    return statement_text(module, tuple(int(p) if p.isdecimal() else p for p in op.split("/")))


def statement_text(module: Module, path: Path) -> str:
    """A statement's first line, or the whole function's name; empty for what is not there."""
    try:
        stmt = get(module, path)
    except (KeyError, IndexError, AssertionError, StopIteration, AttributeError):
        return ""
    lines = print_stmts((stmt,), 0, (), {})
    return "\n".join(lines if len(lines) <= 3 or not blocks(stmt) else lines[:1])
