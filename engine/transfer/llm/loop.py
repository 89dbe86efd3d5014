"""The loop: ask, judge, repair; at most n repairs of each answer from scratch, at most m of these.

An answer that passes may be followed by a better one, where what judges says how it could be; the
one that passed is kept, whatever comes of it.

Edits, meanings and lowerings are asked for in it alike. Every attempt is given out as it ends, with
its whole prompt, answer and outcome, also the ones that failed. The loop knows no server, store or
gate: it is given something that answers and something that judges.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from engine.llm.types import (
    Ending,
    Message,
    Parameters,
    Reply,
    Request,
    Usage,
    conversation_hash,
)
from engine.transfer.llm.outcome import Outcome, Reached
from engine.transfer.llm.prompt import better_text, incomplete_text, repair_text
from engine.types.plain import object_of, plain_json

T = TypeVar("T")
OTHER_TEMPERATURE = 0.8  # of the second and later candidates: at 0 they would all be the first


@dataclass(frozen=True, slots=True)
class Attempt(Generic[T]):
    """One question, its answer, and what it came to."""

    round: int  # 0 is the first answer
    request: Request
    reply: Reply
    outcome: Outcome[T]
    candidate: int = 0  # from 1 on; 0 where no more than one is asked for

    @property
    def id(self) -> str:
        return f"c{self.candidate}r{self.round}" if self.candidate else f"r{self.round}"

    @property
    def reached(self) -> Reached:
        return self.outcome.reached

    @property
    def reason(self) -> str:
        return self.outcome.reason

    @property
    def passed(self) -> bool:
        return self.reached is Reached.PASSED

    def summary(self) -> dict[str, Any]:
        """How far it got, why no further, and what it took."""
        return {
            "candidate": self.candidate or 1,
            "round": self.round,
            "reached": self.reached.word,
            "reason": self.reason,
            "tokens": object_of(self.reply.usage),
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
                "reached": self.reached.word,
                "passed": self.passed,
                "reason": self.reason,
                "op": self.outcome.op,
                "details": plain_json(self.outcome.details),
                "found": self.outcome.found,
                "better": self.outcome.better,
                "microseconds": self.outcome.microseconds,
            },
        }
        return json.dumps(data, indent=1, ensure_ascii=True) + "\n"


Ask = Callable[[Request], Reply]
Judge = Callable[[str], Outcome[T]]
Steer = Callable[[Attempt[T]], "str | None"]


def no_words(_: object) -> str:
    """A person who lets the loop go on."""
    return ""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run: `rounds` repairs at most after each first answer, `candidates` at most.

    0 candidates are one whose attempts bear no number. `asked` is what is to be answered again.
    """

    model: str
    parameters: Parameters = field(default_factory=Parameters)
    rounds: int = 3
    candidates: int = 0
    asked: str = "the complete answer"


def run(
    start: Sequence[Message], plan: Plan, ask: Ask, judge: Judge[T], steer: Steer[T] = no_words
) -> Iterator[Attempt[T]]:
    """Every attempt as it ends. Stops with the first candidate that passes, or that was cancelled.

    `start` is the first prompt, or what the person made of it. `judge` is given the text of
    complete answers only. `steer` hears each failed attempt and gives the person's line for the
    next round, or None to end the candidate there. Raises what `ask` raises.
    """
    for candidate in range(1, plan.candidates + 1) if plan.candidates else (0,):
        passed = False
        for attempt in one_candidate(start, plan, candidate, ask, judge, steer):
            yield attempt
            passed |= attempt.passed
            if attempt.reply.ending is Ending.CANCELLED:
                return
        if passed:
            return


def one_candidate(
    start: Sequence[Message], plan: Plan, candidate: int, ask: Ask, judge: Judge[T], steer: Steer[T]
) -> Iterator[Attempt[T]]:
    """The attempts of one candidate: to the first that passes, and where that could be better, to
    one that is, that says it stands, or the last answer."""
    parameters = plan.parameters
    if candidate > 1:
        parameters = replace(parameters, temperature=OTHER_TEMPERATURE, seed=candidate)
    before = messages = tuple(start)
    earlier: list[str] = []
    kept = False
    for number in range(plan.rounds + 1):
        request = Request(plan.model, messages, parameters)
        attempt = tried(request, ask(request), judge, number, candidate)
        yield attempt
        left = plan.rounds - number
        if not left or (kept and (attempt.passed or attempt.outcome.nothing)):
            return
        if attempt.passed:
            if not attempt.outcome.better:
                return
            kept, earlier = True, []
            before = messages = improved(start, attempt, left)
            continue
        words = "" if kept else steer(attempt)
        if words is None:
            return
        messages = repaired(before, attempt, earlier, words, plan.asked, left)
        earlier.append(f"{attempt.reached.word}: {attempt.reason}")


def tried(
    request: Request, reply: Reply, judge: Judge[T], number: int = 0, candidate: int = 0
) -> Attempt[T]:
    """What a reply comes to."""
    short = reply.shortcoming
    outcome: Outcome[T] = Outcome(Reached.INCOMPLETE, short) if short else judge(reply.text)
    return Attempt(number, request, reply, outcome, candidate)


def repaired(
    start: Sequence[Message],
    attempt: Attempt[T],
    earlier: Sequence[str],
    steer: str,
    asked: str,
    left: int,
) -> tuple[Message, ...]:
    """The next round's prompt: the first one, the last answer, what was wrong with it, and how many
    answers are left."""
    out = attempt.outcome
    if out.reached is Reached.INCOMPLETE:
        # Half an answer is no turn of a conversation, and may be huge.
        last = start[-1]
        note = incomplete_text(out.reason, left, steer)
        return (*start[:-1], Message(last.role, f"{last.text}\n{note}"))
    text = repair_text(out, earlier, steer, asked, left)
    return (*start, Message("assistant", attempt.reply.text), Message("user", text))


def improved(start: Sequence[Message], attempt: Attempt[T], left: int) -> tuple[Message, ...]:
    """The prompt after an answer that passed: that answer, how it could be better, and how many
    answers are left."""
    text = better_text(attempt.outcome.better, left)
    return (*start, Message("assistant", attempt.reply.text), Message("user", text))


def tokens(attempts: Sequence[Attempt[T]]) -> Usage:
    """The tokens of all attempts, where the server counted them."""

    def add(counts: list[int | None]) -> int | None:
        known = [c for c in counts if c is not None]
        return sum(known) if known else None

    return Usage(
        add([a.reply.usage.prompt for a in attempts]), add([a.reply.usage.answer for a in attempts])
    )
