"""Search in the text of a pane: plain text, case ignored unless the words have capitals."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def matches(line: str, words: str) -> list[tuple[int, int]]:
    """Where `words` stand in a shown line: start and end columns."""
    if not words:
        return []
    if words == words.lower():
        line = line.lower()
    out = []
    at = line.find(words)
    while at >= 0:
        out.append((at, at + len(words)))
        at = line.find(words, at + len(words))
    return out


def count(lines: Sequence[str], words: str) -> int:
    """How many lines have a match."""
    if not words:
        return 0
    if words == words.lower():
        return sum(words in line.lower() for line in lines)
    return sum(words in line for line in lines)


def find(line: Callable[[int], str], count: int, words: str, start: int, step: int) -> int | None:
    """The next of `count` lines with a match from `start` on (itself left out), round the end."""
    for distance in range(1, count + 1):
        index = (start + step * distance) % count
        if matches(line(index), words):
            return index
    return None
