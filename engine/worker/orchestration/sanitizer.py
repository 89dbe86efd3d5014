"""compute-sanitizer on the dumped calls: memcheck and racecheck, each in its own process."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from engine.worker.orchestration.children import Child, Ended
from engine.worker.orchestration.manifest import KERNEL
from engine.worker.orchestration.races import OF_SOURCE, only_in, races

TOOLS = ("memcheck", "racecheck")
FOUND = 9  # our own exit code for "the tool reported something"


def find_sanitizer() -> str | None:
    home = os.environ.get("CUDA_HOME") or "/usr/local/cuda"
    known = Path(home) / "bin" / "compute-sanitizer"
    return shutil.which("compute-sanitizer") or (str(known) if known.exists() else None)


def sanitizer_rows(
    child: Sequence[str], key: str, dump: Path, cwd: Path, seconds: float,
    source: Callable[[], Sequence[str]] = tuple,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """A row per tool; not_run with the reason where it cannot work here.

    Args:
        source: the child of the author's unedited source, asked for where racecheck reports
            something; none of a kernel of ours, or where nvcc does not build it.
    """
    program = find_sanitizer()
    for tool in TOOLS:
        row: dict[str, Any] = {"check": tool, "specialisation": key, "cases": 0, "seconds": 0.0}
        if program is None:
            yield {
                **row,
                "verdict": "not_run",
                "reason": "compute-sanitizer is not on this machine",
            }
            continue
        if not dump.is_file():
            yield {**row, "verdict": "not_run", "reason": "no dumped calls: verify first"}
            continue
        tried = [program, "--tool", tool, "--error-exitcode", str(FOUND)]
        ended = _ended([*tried, *child], cwd, seconds)
        launched = _launched(ended)
        row |= {"cases": launched, "seconds": round(ended.seconds, 3)}
        errors = [s.strip("= ") for s in ended.output.splitlines() if s.startswith("=========")]
        if ended.silent:
            yield {**row, "verdict": "not_run", "reason": f"no end within {seconds:g} s"}
        elif ended.code == 0 and launched:
            yield {**row, "verdict": "pass", "notes": {"tool": errors[-1] if errors else ""}}
        elif unable(ended.output):
            yield {
                **row,
                "verdict": "not_run",
                "reason": f"{tool} cannot work here: {unable(ended.output)}",
            }
        elif ended.code == FOUND or _reported(errors):
            wanted = [e for e in errors if e and "COMPUTE-SANITIZER" not in e]
            row |= {"verdict": "fail", "failed": 1, "failures": wanted[:4] or ["see the log"]}
            beside = source() if tool == "racecheck" else ()
            if beside:
                other = _ended([*tried, *beside], cwd, seconds)
                row["seconds"] += round(other.seconds, 3)
                row |= _told_apart(ended, other, cwd / KERNEL)
            yield row
        else:
            text = ended.output.strip().splitlines()
            yield {**row, "verdict": "fail", "failed": 1, "failures": text[-3:] or ["no output"]}


def _ended(command: Sequence[str], cwd: Path, seconds: float) -> Ended:
    ended = Child(command, cwd).follow(lambda event: None, seconds)
    assert ended is not None
    return ended


def _launched(ended: Ended) -> int:
    return len(re.findall(r"^launched ", ended.output, re.MULTILINE))


def _told_apart(patched: Ended, source: Ended, kernel: Path) -> dict[str, Any]:
    """What a row of races says where the unedited source was run too: a pass where it has each of
    them; nothing where that cannot be told."""
    ours, theirs = races(patched.output), races(source.output)
    if not ours or theirs is None or _launched(source) != _launched(patched):
        return {}
    own = only_in(ours, theirs, kernel)
    if own:
        return {"failed": len(own), "failures": [f"race: {race}" for race in sorted(map(str, own))]}
    shared = sorted(map(str, ours))
    return {"verdict": "pass", "failed": 0, "failures": [], "notes": {OF_SOURCE: shared}}


def unable(output: str) -> str:
    """Why the tool could not instrument anything on this machine, or empty."""
    for words in ("Device not supported", "Unable to find injection", "not supported on this"):
        if words in output:
            return words
    return ""


def _reported(errors: Sequence[str]) -> bool:
    return any(re.search(r"ERROR SUMMARY: [1-9]|RACECHECK SUMMARY: [1-9]", e) for e in errors)
