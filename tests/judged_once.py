"""Answers that hundreds of tests ask for, computed once in a run of the tests.

What the process that judges says of a module and a spec of the checkout depends on the question
alone: is the lifted kernel its reference, is what the rules write the spec. The first one asks it,
and whoever asks again, in any worker or command, is told what it said, line by line. A spec that a
test writes is read anew each time, and judged once with the text of its folder; all is done anew
within `anew()`, where a test is of what is judged twice. `told` does the same for what a worker of
the tests computes by itself.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from engine.child.client import SPEC_KEYS, Child, Progress

ROOT = Path(__file__).resolve().parents[1]
REMEMBERED = ("recipe", "judge", "recompute")
ANEW = "CUBRIDGE_TESTS_JUDGE_ANEW"
_ask = Child.call
_folder: Path | None = None


def told(question: list[Any], answer: Callable[[], Any]) -> Any:
    """What `answer` gives as JSON, computed by the first worker that asks the question."""
    if _folder is None:
        return answer()
    kept = _folder / _key("told", question)
    if not kept.exists():
        _keep(kept, answer())
    return json.loads(kept.read_text())


def remember_in(folder: Path) -> None:
    """Have every `Child` of this process answer from a folder what was asked before."""
    global _folder
    _folder = folder

    def call(
        child: Child, command: str, payload: dict[str, Any], *, seconds: float | None = None,
        cancel: threading.Event | None = None, progress: Progress | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        question = None if ANEW in os.environ else _question(command, payload)
        if question is None:
            return _ask(child, command, payload, seconds=seconds, cancel=cancel, progress=progress)
        kept = folder / _key(command, question)
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
        if question is payload or not _names_a_folder_of(payload, [said, result]):
            _keep(kept, {"said": said, "result": result})
        return result

    Child.call = call


def _keep(kept: Path, answer: Any) -> None:
    fresh = kept.with_suffix(f".{os.getpid()}.{threading.get_ident()}")
    fresh.write_text(json.dumps(answer))
    fresh.replace(kept)


@contextmanager
def anew() -> Iterator[None]:
    """Nothing is told again that was said before."""
    os.environ[ANEW] = "1"
    try:
        yield
    finally:
        del os.environ[ANEW]


def _key(command: str, payload: Any) -> str:
    return hashlib.sha256(json.dumps([command, payload]).encode()).hexdigest()


def _specs(payload: dict[str, Any]) -> dict[str, Path]:
    return {key: Path(str(payload[key])) for key in SPEC_KEYS if payload.get(key)}


def _question(command: str, payload: dict[str, Any]) -> dict[str, Any] | None:
    """All that the answer depends on; None where it is asked for anew."""
    specs = _specs(payload)
    if command not in REMEMBERED or not specs:
        return None
    if all(path.is_relative_to(ROOT) for path in specs.values()):
        return payload
    if command != "judge":
        return None
    texts = {
        key: [path.name, *((str(f.relative_to(path.parent)), f.read_text("utf-8", "replace"))
                           for f in sorted(path.parent.rglob("*.py")))]
        for key, path in specs.items()
    }  # fmt: skip
    return {**payload, **texts}


def _names_a_folder_of(payload: dict[str, Any], answer: Any) -> bool:
    text = json.dumps(answer)
    return any(str(path.parent) in text for path in _specs(payload).values())
