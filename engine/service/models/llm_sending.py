"""What a person sees before anything is sent to a model, and how they agree to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.errors import InputError
from engine.llm.types import Message
from engine.resources import docs_dir
from engine.types import sha256_of

MANUAL = "cuir.md"


@dataclass(frozen=True, slots=True)
class Part:
    """One thing that a request carries: what it is, its size, and what tells its content."""

    name: str
    bytes: int
    content: str  # a hash

    @classmethod
    def of(cls, name: str, *texts: str, bytes: int | None = None) -> Part:
        """Of its texts; `bytes` where it is that much of them."""
        sizes = [len(text.encode("utf-8", "replace")) for text in texts]
        whole = sum(sizes) if bytes is None else bytes
        return cls(name, whole, sha256_of("\0".join(texts)))


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
