"""Which comparisons of Python a spec decides by sizes.

`q.size(-1) == 64` in Python leaves no trace in a tensor. Every comparison of a `Size` that the
spec's own files make is noted here, so that both its answers can be tried.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.cuir.nodes import Compare

MAX_PER_LINE = 8  # comparisons of one line that are told apart; a loop makes one per round


@dataclass(frozen=True, slots=True)
class Branch:
    """A comparison over dimension names, and where the spec makes it."""

    test: Compare
    file: str
    line: int


@dataclass(slots=True)
class Watch:
    """What one run compared: the answer of each comparison, forced ones included."""

    spec: Path
    integers: frozenset[int]  # of the file, for lookups of a size in a table
    forced: Mapping[Branch, bool] = field(default_factory=dict)
    seen: dict[Branch, bool] = field(default_factory=dict)

    def answer(self, test: Compare, value: bool, frame: Any) -> bool:
        """Note a comparison that the spec's own files make; `frame` is its caller's."""
        file = frame.f_code.co_filename
        folder = f"{self.spec.parent}/"
        if file != str(self.spec) and (not file.startswith(folder) or "site-packages" in file):
            return value
        branch = Branch(test, file, frame.f_lineno)
        value = self.forced.get(branch, value)
        if branch not in self.seen:
            same = sum(b.line == branch.line and b.file == file for b in self.seen)
            if same >= MAX_PER_LINE:
                return value
        self.seen[branch] = value
        return value
