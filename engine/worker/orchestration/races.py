"""Races that racecheck reports of a patched kernel and of its author's unedited source alike.

racecheck follows barriers, and not all that orders two accesses: it also reports code that is
right, in the author's own text. A race is the source's own where both accesses are, by their kind
and their lines; lines of a patched file are compared where the author's file has them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

OF_SOURCE = "of the unedited source too"
MOST = 100  # reports of one run: with as many the tool may have left some out

_HEAD = re.compile(r"^========= (Error|Warning): Race reported between (.*)$")
_MORE = re.compile(r"^=========\s{2,}and (.*)$")
_ACCESS = re.compile(r"^(\w+) access at .* in (?:[^\s:]*/)?([^\s/:]+):(\d+)\b")
_SUMMARY = re.compile(r"RACECHECK SUMMARY: \d+ hazards? displayed \((\d+) errors?")


@dataclass(frozen=True)
class Access:
    """`Read` or `Write`, and where: a file's name, and a line of it."""

    kind: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.kind} {self.file}:{self.line}"


@dataclass(frozen=True)
class Race:
    """Two accesses in the order in which the tool names them."""

    first: Access
    second: Access

    def __str__(self) -> str:
        return f"{self.first}, {self.second}"


def races(output: str) -> set[Race] | None:
    """The errors of a run of racecheck; None where one names no line, or some may be left out."""
    found: set[Race] = set()
    first: Access | None = None
    errors = 0
    for line in output.splitlines():
        if head := _HEAD.match(line):
            errors += head[1] == "Error"
            first = _access(head[2]) if head[1] == "Error" else None
            if first is None and head[1] == "Error":
                return None
        elif (more := _MORE.match(line)) and first is not None:
            second = _access(more[1])
            if second is None:
                return None
            found.add(Race(first, second))
    said = _SUMMARY.search(output)
    whole = said is not None and int(said[1]) == errors < MOST
    return found if whole else None


def _access(words: str) -> Access | None:
    found = _ACCESS.match(words)
    return None if found is None else Access(found[1], found[2], int(found[3]))


def only_in(patched: set[Race], source: set[Race], kernel: Path) -> set[Race]:
    """The races of a patched kernel that its source has not.

    Args:
        kernel: the job's folder of files: patched ones in their places, the author's of those
            folders below `source`.
    """
    lines = _Lines(kernel)
    return {race for race in patched if lines.of_author(race) not in source}


class _Lines:
    """Which line of the author's file a line of the patched one is."""

    def __init__(self, kernel: Path) -> None:
        self.pairs: dict[str, list[dict[int, int]]] = {}  # by the file's name
        for theirs in sorted((kernel / "source").rglob("*")):
            ours = kernel / theirs.relative_to(kernel / "source")
            if theirs.is_file() and ours.is_file():
                self.pairs.setdefault(theirs.name, []).append(dict(_equal(ours, theirs)))

    def of_author(self, race: Race) -> Race | None:
        """The race at the author's lines; None where one is the patch's own."""
        first, second = self.access(race.first), self.access(race.second)
        return None if first is None or second is None else Race(first, second)

    def access(self, at: Access) -> Access | None:
        held = self.pairs.get(at.file)
        if held is None:
            return at
        lines = {pair.get(at.line) for pair in held}  # several files may have that name
        line = lines.pop()
        return None if lines or line is None else Access(at.kind, at.file, line)


def _equal(ours: Path, theirs: Path) -> Iterator[tuple[int, int]]:
    """Lines of one file, counted from 1, that another has too."""
    was, now = (path.read_bytes().splitlines() for path in (theirs, ours))
    if was == now:
        yield from ((n, n) for n in range(1, len(now) + 1))
        return
    for i, j, count in SequenceMatcher(None, now, was, autojunk=False).get_matching_blocks():
        yield from ((i + n + 1, j + n + 1) for n in range(count))
