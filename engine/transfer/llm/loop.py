"""The loop: ask, read, apply, check, judge, repair; at most n repairs, m candidates.

Every attempt is given out as it ends, with its whole prompt, answer and verdict, also the ones that
failed. The loop knows no server, store or gate: it is given something that answers and something
that judges.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

from engine.cuir.check import check
from engine.cuir.nodes import Module, Path, blocks
from engine.cuir.printer import print_stmts
from engine.cuir.rewrite import get
from engine.errors import CuBridgeError
from engine.llm.types import (
    Ending,
    Message,
    Parameters,
    Reply,
    Request,
    Usage,
    conversation_hash,
)
from engine.lower.legal import legal
from engine.transfer.binding import Binding
from engine.transfer.llm.answer import AnswerError, AnswerRefused, read_answer, shortened
from engine.transfer.llm.apply import apply_answer
from engine.transfer.llm.bind import bind
from engine.transfer.llm.guards import refuse_tricks
from engine.transfer.llm.names import refuse_names
from engine.transfer.llm.prompt import (
    Failure,
    Task,
    incomplete_text,
    repair_text,
)
from engine.types.plain import plain_json

OTHER_TEMPERATURE = 0.8  # of the second and later candidates: at 0 they would all be the first


class Reached(IntEnum):
    """How far an attempt got; a larger value is further."""

    INCOMPLETE = 0  # cut off, filtered, empty, broken: nothing was applied
    UNREADABLE = 1  # no edit, or one that does not apply
    REFUSED = 2  # it tries what no edit may do
    UNSOUND = 3  # a module, but the checks find fault
    G2 = 4  # judged by G2, which fails
    UNMET = 5  # G2 passed; something else that was asked for is not there
    LOWERING = 6  # G2 passed; it cannot be written back, or G3 fails
    PASSED = 7


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the gates say about a module: passed, or the first thing wrong."""

    reached: Reached
    reason: str
    op: str = ""  # a path, as the gates write it
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One question and its answer. `module` is set when the answer became one."""

    candidate: int
    round: int  # 0 is the first answer
    request: Request
    reply: Reply
    reached: Reached
    reason: str
    words: str = ""  # the model's own reason
    module: Module | None = None
    binding: Binding | None = None
    op: str = ""
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def id(self) -> str:
        return f"c{self.candidate}r{self.round}"

    @property
    def passed(self) -> bool:
        return self.reached is Reached.PASSED

    def summary(self) -> dict[str, Any]:
        """How far it got, why no further, and what it took."""
        return {
            "candidate": self.candidate,
            "round": self.round,
            "reached": self.reached.name.lower(),
            "reason": self.reason,
            "tokens": self.reply.usage.to_json(),
            "seconds": round(self.reply.seconds, 3),
        }

    def transcript(self) -> str:
        """The whole attempt as JSON text: prompt, answer, model, parameters, outcome.

        Seconds are the recorded reply's, so a replay writes the same bytes.
        """
        data = {
            "schema": 1,
            "attempt": self.id,
            "prompt_sha256": conversation_hash(self.request.messages),
            "request": self.request.to_json(),
            "reply": self.reply.to_json(),
            "outcome": {
                "reached": self.reached.name.lower(),
                "passed": self.passed,
                "reason": self.reason,
                "op": self.op,
                "details": plain_json(self.details),
            },
        }
        return json.dumps(data, indent=1, ensure_ascii=True) + "\n"


Ask = Callable[[Request], Reply]
Judge = Callable[[Module, Binding], Judgement]
Steer = Callable[[Attempt], "str | None"]


def no_words(_: Attempt) -> str:
    """A person who lets the loop go on."""
    return ""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run: `rounds` repairs at most after each first answer, `candidates` at most."""

    model: str
    parameters: Parameters = field(default_factory=Parameters)
    rounds: int = 3
    candidates: int = 1
    compare: bool = False  # go on to the other candidates after one has passed


def run(
    task: Task,
    start: Sequence[Message],
    plan: Plan,
    ask: Ask,
    judge: Judge,
    steer: Steer = no_words,
) -> Iterator[Attempt]:
    """Every attempt as it ends. Stops at the first that passes, unless `plan.compare`.

    `start` is the first prompt: `prompt.first_messages(task, manual)`, or what the person made of
    it.

    `steer` hears each failed attempt and gives the person's line for the next round, or None to
    stop there. Raises what `ask` raises.
    """
    for candidate in range(1, plan.candidates + 1):
        passed = False
        for attempt in one_candidate(task, start, plan, candidate, ask, judge, steer):
            yield attempt
            passed = attempt.passed
            if attempt.reply.ending is Ending.CANCELLED:
                return
        if passed and not plan.compare:
            return


def one_candidate(
    task: Task,
    start: Sequence[Message],
    plan: Plan,
    candidate: int,
    ask: Ask,
    judge: Judge,
    steer: Steer = no_words,
) -> Iterator[Attempt]:
    """The attempts of one candidate."""
    parameters = plan.parameters
    if candidate > 1:
        parameters = replace(parameters, temperature=OTHER_TEMPERATURE, seed=candidate)
    messages = tuple(start)
    failures: list[str] = []
    for number in range(plan.rounds + 1):
        request = Request(plan.model, messages, parameters)
        attempt = try_answer(task, request, ask(request), judge, candidate, number)
        yield attempt
        if attempt.passed or attempt.reply.ending is Ending.CANCELLED or number == plan.rounds:
            return
        words = steer(attempt)
        if words is None:
            return
        messages = repaired(task, tuple(start), attempt, failures, words)
        failures.append(f"{attempt.reached.name.lower()}: {attempt.reason}")


def repaired(
    task: Task,
    start: tuple[Message, ...],
    attempt: Attempt,
    earlier: Sequence[str] = (),
    steer: str = "",
) -> tuple[Message, ...]:
    """The next round's prompt: the first one, the last answer, and what was wrong with it."""
    if attempt.reached is Reached.INCOMPLETE:
        # Half an answer is no turn of a conversation, and may be huge.
        last = start[-1]
        note = incomplete_text(attempt.reason, steer)
        return (*start[:-1], Message(last.role, f"{last.text}\n{note}"))
    failure = Failure(_STAGES[attempt.reached], attempt.reason, _op_text(attempt), attempt.details)
    return (
        *start,
        Message("assistant", attempt.reply.text),
        Message("user", repair_text(failure, earlier, steer)),
    )


_STAGES: Mapping[Reached, str] = {
    Reached.INCOMPLETE: "",
    Reached.UNREADABLE: "It could not be applied:",
    Reached.REFUSED: "It was refused:",
    Reached.UNSOUND: "It applies, but the checks of the module find:",
    Reached.G2: "It runs, but it does not compute the person's function (gate G2):",
    Reached.UNMET: (
        "It computes the person's function (gate G2 passed), but not all that was asked is there:"
    ),
    Reached.LOWERING: (
        "It computes the person's function (gate G2 passed), but it cannot be built (gate G3):"
    ),
    Reached.PASSED: "",
}


def try_answer(
    task: Task, request: Request, reply: Reply, judge: Judge, candidate: int = 1, number: int = 0
) -> Attempt:
    """What a reply comes to."""
    start = Attempt(candidate, number, request, reply, Reached.INCOMPLETE, reply.note)
    if not reply.complete:
        return replace(start, reason=reply.shortcoming)
    try:
        answer = read_answer(reply.text)
        module = apply_answer(answer, task.base, task.ids)
        refuse_names(task.base, module)
        refuse_tricks(task.base, module, spec_numbers(task.spec_text))
        binding = bind(task.base, module, task.interface, answer.bind)
    except AnswerRefused as error:
        return replace(start, reached=Reached.REFUSED, reason=error.message)
    except AnswerError as error:
        return replace(start, reached=Reached.UNREADABLE, reason=error.message)
    except CuBridgeError as error:
        return replace(start, reached=Reached.UNREADABLE, reason=shortened(str(error)))
    except RecursionError:
        return replace(start, reached=Reached.REFUSED, reason="the edit nests too deeply to read")
    made = replace(start, words=answer.reason, binding=binding, module=module)
    try:
        # The static checks first: they read the text as the model wrote it.
        findings = check(module)
        if findings:
            first = findings[0]
            op = "/".join(map(str, first.path))
            return replace(
                made,
                reached=Reached.UNSOUND,
                op=op,
                reason=shortened(f"{first.kind}: {first.message}"),
            )
        module = legal(module)
    except CuBridgeError as error:
        return replace(made, reached=Reached.UNSOUND, reason=shortened(str(error)))
    except Exception as error:  # a text that nobody thought of must not end the session
        reason = f"the checks cannot read the module ({type(error).__name__}: {error})"
        return replace(made, reached=Reached.UNSOUND, reason=reason)
    found = judge(module, binding)
    return replace(
        made, module=module, reached=found.reached, reason=found.reason, op=found.op,
        details=found.details,
    )  # fmt: skip


def spec_numbers(text: str) -> frozenset[int]:
    """The integers that a spec's file names: sizes may be compared with these."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()
    found = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)}
    return frozenset(int(v) for v in found if isinstance(v, int) and not isinstance(v, bool))


def best(attempts: Sequence[Attempt]) -> Attempt | None:
    """The attempt that got furthest, of those that became a module; the earliest among equals.

    Among those that G2 judged, one that ran more of the deck got further.
    """
    made = [a for a in attempts if a.module is not None and a.reached >= Reached.G2]
    return max(made, key=lambda a: (a.reached, _runs(a)), default=None)


def tokens(attempts: Sequence[Attempt]) -> Usage:
    """The tokens of all attempts, where the server counted them."""

    def add(counts: list[int | None]) -> int | None:
        known = [c for c in counts if c is not None]
        return sum(known) if known else None

    return Usage(
        add([a.reply.usage.prompt for a in attempts]), add([a.reply.usage.answer for a in attempts])
    )


def _runs(attempt: Attempt) -> int:
    runs = attempt.details.get("runs")
    return len(runs) if isinstance(runs, list) else 0


def _op_text(attempt: Attempt) -> str:
    """The statement that the attempt's op path names, as the model wrote it."""
    if attempt.module is None or not attempt.op:
        return ""
    path = tuple(int(p) if p.isdecimal() else p for p in attempt.op.split("/"))
    return statement_text(attempt.module, path)


def statement_text(module: Module, path: Path) -> str:
    """A statement's first line, or the whole function's name; empty for what is not there."""
    try:
        stmt = get(module, path)
    except (KeyError, IndexError, AssertionError, StopIteration, AttributeError):
        return ""
    lines = print_stmts((stmt,), 0, (), {})
    return "\n".join(lines if len(lines) <= 3 or not blocks(stmt) else lines[:1])
