"""A session's conversation with a model: who is asked, what is agreed to, and what is kept of it.

An edit, meanings and a lowering are asked for alike. Nothing leaves the machine before `consent`
has been given what goes and where. Every attempt is kept as a transcript, failed ones with their
verdict; one that is good enough becomes a proposal like any other, whose hunks a person decides on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from engine.errors import CuBridgeError, InputError
from engine.llm.ask import ask
from engine.llm.errors import LlmError
from engine.llm.settings import Prices
from engine.llm.types import (
    Client,
    Ending,
    Listen,
    Message,
    Parameters,
    Reply,
    Request,
    Usage,
    deaf,
)
from engine.resources import docs_dir
from engine.service.session.adaptation import Adaptation
from engine.transfer.llm.loop import Attempt, Judge, Plan, Steer, no_words, run, tokens
from engine.types import Proposal, sha256_of
from sessions.events import Body, Note, TranscriptAdded

MANUAL = "cuir.md"


@dataclass(frozen=True, slots=True)
class Part:
    """One thing that a request carries: what it is, its size, and which content it is."""

    name: str
    bytes: int
    content: str = ""  # a hash of what a person wrote


@dataclass(frozen=True, slots=True)
class Outgoing:
    """What the person sees before anything is sent."""

    place: str  # host and port
    model: str
    parts: tuple[Part, ...]
    requests: int  # at most
    manner: str = ""  # how it travels, with which key

    @property
    def bytes(self) -> int:
        return sum(p.bytes for p in self.parts)

    def words(self) -> str:
        """In a few lines."""
        rows = "\n".join(f"  {p.bytes:>8} bytes  {p.name}" for p in self.parts)
        return (
            f"to {self.place} ({self.manner}), model {self.model}, at most {self.requests} "
            f"requests; the first one carries {self.bytes} bytes:\n{rows}\n"
            "later ones add the model's own answers and what the gates found"
        )


Consent = Callable[[Outgoing], bool]


def size_of(prompt: Sequence[Message]) -> int:
    """Bytes of a prompt's texts."""
    return sum(len(m.text.encode("utf-8", "replace")) for m in prompt)


def manual() -> str:
    """The CuIR manual, as every prompt carries it."""
    return (docs_dir() / MANUAL).read_text(encoding="utf-8")


def agree(consent: Consent, outgoing: Outgoing) -> None:
    """Ask the person before anything goes.

    Raises:
        InputError: the person did not agree.
    """
    if not consent(outgoing):
        raise InputError(
            f"nothing was sent to {outgoing.place}",
            fix="look at what would be sent, then agree (--yes in the headless run)",
        )


def actor_name(model: str) -> str:
    """The model as the event log names it."""
    return f"model {model}"


T = TypeVar("T")
Events = tuple[list[Body], list[bytes]]  # what happened, and the contents that it names


@dataclass(frozen=True, slots=True)
class Result(Generic[T]):
    """What a run of the model came to."""

    attempts: tuple[Attempt[T], ...]
    proposal: Proposal | None

    @property
    def passed(self) -> bool:
        return any(a.passed for a in self.attempts)

    @property
    def cancelled(self) -> bool:
        return any(a.reply.ending is Ending.CANCELLED for a in self.attempts)

    @property
    def usage(self) -> Usage:
        return tokens(self.attempts)

    def cost(self, prices: Prices | None) -> str:
        """Tokens, and money where the person's own config names prices."""
        used = self.usage
        if used.prompt is None and used.answer is None:
            return "the server counted no tokens"
        text = f"{used.prompt or 0} tokens sent, {used.answer or 0} received"
        if prices is None:
            return text
        money = ((used.prompt or 0) * prices.prompt + (used.answer or 0) * prices.answer) / 1e6
        return f"{text}, {money:.4f} {prices.currency}"


@dataclass(slots=True)
class Conversation(Generic[T]):
    """The model's part in one session. `work` must have been lifted."""

    work: Adaptation
    client: Client
    model: str
    consent: Consent
    parameters: Parameters = field(default_factory=Parameters)
    listen: Listen = deaf
    steer: Steer[T] = no_words
    on_attempt: Callable[[Attempt[T]], None] = lambda _: None
    _agreed: frozenset[tuple[str, str, str, str]] = (
        frozenset()
    )  # place, model, part and its content

    @property
    def actor(self) -> str:
        return actor_name(self.model)

    def sending(self, parts: Sequence[Part], requests: int) -> Outgoing:
        """What the first request carries, and where to."""
        return Outgoing(self.client.place, self.model, tuple(parts), requests, self.client.manner)

    def hold(
        self, name: str, outgoing: Outgoing, start: Sequence[Message], rounds: int,
        judge: Judge[T], **plan: object,
    ) -> tuple[Attempt[T], ...]:  # fmt: skip
        """Ask once it is agreed to; all attempts, each in the session before `on_attempt` has it.

        `plan` are fields of `Plan`. Raises what asking raises, after a note of how far it came.

        Raises:
            LlmError: the server gave no answer; what came before is recorded.
            InputError: the person did not agree to what would be sent.
        """
        self._agree(outgoing)
        asked = Plan(self.model, self.parameters, rounds, **plan)  # type: ignore[arg-type]
        attempts: list[Attempt[T]] = []
        with self._noted(name, attempts):
            for attempt in run(start, asked, self._ask, judge, self.steer):
                attempts.append(attempt)
                self.work.writer.append(*self.events(name, attempt), actor=self.actor)
                self.on_attempt(attempt)
        return tuple(attempts)

    def events(self, name: str, attempt: Attempt[T]) -> Events:
        """An attempt as a session keeps it."""
        text = attempt.transcript()
        added = TranscriptAdded(f"{name}.{attempt.id}.json", sha256_of(text), name)
        return [added], [text.encode("ascii")]

    def _ask(self, request: Request) -> Reply:
        """The session's cancel ends it at once."""
        self.work.bench.progress(f"asking {request.model} at {self.client.place}")
        return ask(self.client, request, self.listen, self.work.bench.cancel)

    def _agree(self, outgoing: Outgoing) -> None:
        """What was agreed to, part by part, is not asked again."""
        wanted = frozenset(
            (outgoing.place, outgoing.model, p.name, p.content) for p in outgoing.parts
        )
        if not wanted <= self._agreed:
            agree(self.consent, outgoing)
            self._agreed |= wanted

    @contextmanager
    def _noted(self, name: str, done: Sequence[Attempt[T]]) -> Iterator[None]:
        """What ends a run before its time is noted, with the answers that there were; an error of
        the server's takes nothing from one that passed."""
        try:
            yield
        except CuBridgeError as error:
            said = f"{name}: stopped after {len(done)} answers: {error.message}"
            self.work.writer.append([Note(said)], actor=self.work.actor)
            if not (isinstance(error, LlmError) and any(a.passed for a in done)):
                raise
