"""Ask, judge, repair at most n times: what meanings and lowerings have in common.

The loop knows no server and no gate. Each trial is given out as it ends, with its whole prompt,
answer and outcome, also the ones that failed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from engine.llm.types import Ending, Message, Parameters, Reply, Request, conversation_hash
from engine.transfer.llm.prompt import Failure, incomplete_text, repair_text
from engine.types.plain import plain_json

T = TypeVar("T")

INCOMPLETE, UNREADABLE, REFUSED, UNSOUND, PASSED = (
    "incomplete", "unreadable", "refused", "unsound", "passed",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """What an answer came to. `value` is there when it could be read; `stage` is said to the model
    before the reason."""

    reached: str
    reason: str
    stage: str = ""
    value: T | None = None
    op: str = ""
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def passed(self) -> bool:
        return self.reached == PASSED


@dataclass(frozen=True, slots=True)
class Trial(Generic[T]):
    """One question, its answer, and what it came to."""

    round: int
    request: Request
    reply: Reply
    outcome: Outcome[T]

    def summary(self) -> dict[str, Any]:
        """How far it got, why no further, and what it took."""
        return {
            "candidate": 1,
            "round": self.round,
            "reached": self.outcome.reached,
            "reason": self.outcome.reason,
            "tokens": self.reply.usage.to_json(),
            "seconds": round(self.reply.seconds, 3),
        }

    def transcript(self) -> str:
        """The whole trial as JSON text; a replay writes the same bytes."""
        data = {
            "schema": 1,
            "attempt": f"r{self.round}",
            "prompt_sha256": conversation_hash(self.request.messages),
            "request": self.request.to_json(),
            "reply": self.reply.to_json(),
            "outcome": {
                "reached": self.outcome.reached,
                "passed": self.outcome.passed,
                "reason": self.outcome.reason,
                "op": self.outcome.op,
                "details": plain_json(self.outcome.details),
            },
        }
        return json.dumps(data, indent=1, ensure_ascii=True) + "\n"


def trials(
    model: str,
    parameters: Parameters,
    start: Sequence[Message],
    rounds: int,
    ask: Callable[[Request], Reply],
    judge: Callable[[str], Outcome[T]],
    steer: Callable[[Trial[T]], str | None] = lambda _: "",
) -> Iterator[Trial[T]]:
    """Every trial as it ends; stops at the first that passes, or when `steer` gives None.

    `judge` is given the text of complete answers only. Raises what `ask` raises.
    """
    messages = tuple(start)
    earlier: list[str] = []
    for number in range(rounds + 1):
        request = Request(model, messages, parameters)
        reply = ask(request)
        short = reply.shortcoming
        outcome = Outcome(INCOMPLETE, short) if short else judge(reply.text)
        trial = Trial(number, request, reply, outcome)
        yield trial
        if outcome.passed or reply.ending is Ending.CANCELLED or number == rounds:
            return
        words = steer(trial)
        if words is None:
            return
        if outcome.reached == INCOMPLETE:
            last = start[-1]
            note = incomplete_text(outcome.reason, words)
            messages = (*start[:-1], Message(last.role, f"{last.text}\n{note}"))
        else:
            failure = Failure(outcome.stage, outcome.reason, outcome.op, outcome.details)
            text = repair_text(failure, earlier, words, what="the complete answer")
            messages = (*start, Message("assistant", reply.text), Message("user", text))
        earlier.append(f"{outcome.reached}: {outcome.reason}")
