"""An edit of a kernel that is right, and wrong ones of it, as replacements of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Replaced = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Right:
    """The right edit: what is replaced by what in the source, for a spec with its options; and
    wrong ones by name, as replacements in the edited source."""

    spec: str
    edits: Replaced
    wrong: Mapping[str, Replaced]
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Edited:
    """A kernel, the sizes that it is executed at, and its edits; `first` is replaced in all."""

    source: Path
    sizes: Sequence[Mapping[str, int]]
    rights: Sequence[Right]
    first: Replaced = ()


def one(old: str, new: str) -> Replaced:
    return ((old, new),)


def replaced(text: str, edits: Replaced) -> str:
    """The text with each first `old` as its `new`."""
    for old, new in edits:
        if old not in text:
            raise ValueError(f"the source has no {old!r}")
        text = text.replace(old, new, 1)
    return text
