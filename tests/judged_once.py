"""Answers of the process that judges, computed once in a run of the tests.

What it says of a module and a spec of the checkout depends on the question alone, and hundreds of
tests ask the same: is the lifted kernel its reference, is what the rules write the spec. The first
one asks it, and whoever asks again, in any worker or command, is told what it said, line by line. A
spec that a test writes is judged anew each time; so is all within `anew()`, where a test is of what
is judged twice.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from engine.child.client import SPEC_KEYS, Child, Progress

ROOT = Path(__file__).resolve().parents[1]
REMEMBERED = ("recipe", "judge", "recompute")
ANEW = "CUBRIDGE_TESTS_JUDGE_ANEW"
_ask = Child.call


def remember_in(folder: Path) -> None:
    """Have every `Child` of this process answer from a folder what was asked before."""

    def call(
        child: Child, command: str, payload: dict[str, Any], *, seconds: float | None = None,
        cancel: threading.Event | None = None, progress: Progress | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        kept = folder / _key(command, payload)
        if command not in REMEMBERED or not _of_the_checkout(payload) or ANEW in os.environ:
            return _ask(child, command, payload, seconds=seconds, cancel=cancel, progress=progress)
        if kept.exists() and not (cancel is not None and cancel.is_set()):
            answer = json.loads(kept.read_text())
            for line in answer["said"] if progress is not None else ():
                progress(line)
            return answer["result"]
        said: list[str] = []

        def heard(line: str) -> None:
            said.append(line)
            if progress is not None:
                progress(line)

        result = _ask(child, command, payload, seconds=seconds, cancel=cancel, progress=heard)
        fresh = kept.with_suffix(f".{os.getpid()}.{threading.get_ident()}")
        fresh.write_text(json.dumps({"said": said, "result": result}))
        fresh.replace(kept)
        return result

    Child.call = call


@contextmanager
def anew() -> Iterator[None]:
    """Nothing is told again that was said before."""
    os.environ[ANEW] = "1"
    try:
        yield
    finally:
        del os.environ[ANEW]


def _key(command: str, payload: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps([command, payload]).encode()).hexdigest()


def _of_the_checkout(payload: dict[str, Any]) -> bool:
    """Whether the spec is one that no test changes."""
    paths = [Path(str(payload[key])) for key in SPEC_KEYS if payload.get(key)]
    return bool(paths) and all(path.is_relative_to(ROOT) for path in paths)
