"""What is sent to a model and what comes back. Standard library only."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, Protocol

from engine.types import sha256_of
from engine.types.plain import made_of, object_of, read_object

Speaker = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of the conversation."""

    role: Speaker
    text: str

    def to_json(self) -> dict[str, str]:
        return {"role": self.role, "content": self.text}


@dataclass(frozen=True, slots=True)
class Parameters:
    """How the model samples. None leaves the choice to the server.

    `max_tokens` caps the length of an answer: an answer that reaches it is an incomplete draft.
    """

    temperature: float | None = 0.0
    max_tokens: int | None = 16_000
    seed: int | None = None

    def to_json(self) -> dict[str, Any]:
        made = {
            "temperature": self.temperature, "max_tokens": self.max_tokens, "seed": self.seed
        }  # fmt: skip
        return {name: value for name, value in made.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Request:
    """One question. Its hash names it in recordings; server address and key take no part."""

    model: str
    messages: tuple[Message, ...]
    parameters: Parameters = field(default_factory=Parameters)

    def to_json(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "messages": [m.to_json() for m in self.messages],
            "parameters": self.parameters.to_json(),
        }

    @property
    def sha256(self) -> str:
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

    @property
    def bytes(self) -> int:
        """Bytes of text that leave this machine."""
        return sum(len(m.text.encode("utf-8", "replace")) for m in self.messages)


class Ending(StrEnum):
    """How an answer ended. Only COMPLETE is an answer; the rest are incomplete drafts."""

    COMPLETE = "complete"
    LENGTH = "length"  # cut off at the cap on tokens or characters
    FILTERED = "filtered"  # the server's content filter, or a refusal
    EMPTY = "empty"
    BROKEN = "broken"  # the stream ended without saying how, or with garbage
    STALLED = "stalled"  # no chunk within the limit
    OVERTIME = "overtime"  # the whole answer took too long
    CANCELLED = "cancelled"


_SHORT = {
    Ending.LENGTH: "the answer was cut off: it reached the cap on its length",
    Ending.FILTERED: "the answer was filtered or refused by the server",
    Ending.EMPTY: "the answer is empty",
    Ending.BROKEN: "the answer broke off",
    Ending.STALLED: "the answer stalled",
    Ending.OVERTIME: "the answer took too long",
    Ending.CANCELLED: "cancelled",
}


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the server counted them; None where it did not say."""

    prompt: int | None = None
    answer: int | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back. `text` of an incomplete reply is a draft to look at, never to apply.

    `seconds` is wall time of the request that answered; `tries` counts requests, retries included.
    `note` says in words what was unusual.
    """

    ending: Ending
    text: str
    reasoning: str = ""
    usage: Usage = Usage()
    model: str = ""
    response_id: str = ""
    seconds: float = 0.0
    tries: int = 1
    note: str = ""

    @property
    def complete(self) -> bool:
        return self.ending is Ending.COMPLETE

    @property
    def shortcoming(self) -> str:
        """Why it is no answer, in words; empty for a complete one."""
        if self.complete:
            return ""
        words = _SHORT[self.ending]
        return f"{words} ({self.note})" if self.note not in ("", words) else words

    def to_json(self) -> dict[str, Any]:
        return {"schema": 1, **object_of(self)}

    @staticmethod
    def from_json(data: object) -> Reply:
        """Raises ValueError on what is no reply."""
        return made_of(Reply, read_object(data, "reply"))


class Kind(StrEnum):
    """What a listener hears while a request runs."""

    CONNECTING = "connecting"
    TEXT = "text"
    REASONING = "reasoning"
    WAITING = "waiting"  # between tries: `seconds` counts down
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Heard:
    """One thing heard. `text` comes from the server: show it sanitised."""

    kind: Kind
    text: str = ""
    seconds: float = 0.0


Listen = Callable[[Heard], None]


def deaf(_: Heard) -> None:
    """A listener for callers that show nothing."""


class Client(Protocol):
    """Whatever answers requests: a server, a recording."""

    @property
    def place(self) -> str:
        """Where requests go, for a person to read: host and port, or the recording's folder."""
        ...

    @property
    def manner(self) -> str:
        """How they travel and with which key, for a person to read."""
        ...

    async def complete(self, request: Request, listen: Listen = deaf) -> Reply:
        """The reply. Raises `LlmError` when there is none."""
        ...


def conversation_hash(messages: Sequence[Message]) -> str:
    """SHA-256 of a prompt, for transcripts."""
    return sha256_of(json.dumps([m.to_json() for m in messages], sort_keys=True))
