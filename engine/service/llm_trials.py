"""What a session keeps of a model's trials, whether they are about meanings or about a lowering."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager
from typing import TypeVar

from engine.errors import CuBridgeError
from engine.llm.ask import ask
from engine.llm.types import Client, Listen, Reply, Request
from engine.service.adaptation import Adaptation
from engine.service.llm_sending import actor_name
from engine.transfer.llm.rounds import Trial
from engine.types import sha256_of
from sessions.events import Note, TranscriptAdded

T = TypeVar("T")


def asker(work: Adaptation, client: Client, listen: Listen) -> Callable[[Request], Reply]:
    """Asks `client`, and says so; the session's cancel ends it at once."""

    def asked(request: Request) -> Reply:
        work.bench.progress(f"asking {request.model} at {client.place}")
        return ask(client, request, listen, work.bench.cancel)

    return asked


@contextmanager
def noted(work: Adaptation, name: str, done: Sized) -> Iterator[None]:
    """What ends a run of the model before its time is noted, with the answers that there were."""
    try:
        yield
    except CuBridgeError as error:
        said = f"{name}: stopped after {len(done)} answers: {error.message}"
        work.writer.append([Note(said)], actor=work.actor)
        raise


def kept(
    work: Adaptation,
    model: str,
    name: str,
    found: Iterator[Trial[T]],
    heard: Callable[[Trial[T]], None],
) -> tuple[Trial[T], ...]:
    """All trials, each with its transcript in the session before `heard` is given it.

    Raises what asking raises, after a note of how far it came.
    """
    done: list[Trial[T]] = []
    with noted(work, name, done):
        for trial in found:
            done.append(trial)
            text = trial.transcript()
            added = TranscriptAdded(f"{name}.r{trial.round}.json", sha256_of(text), name)
            work.writer.append([added], [text.encode("ascii")], actor=actor_name(model))
            heard(trial)
    return tuple(done)


def passed(trials: tuple[Trial[T], ...]) -> T | None:
    """What the last trial came to, if it passed."""
    last = trials[-1]
    return last.outcome.value if last.outcome.passed else None
