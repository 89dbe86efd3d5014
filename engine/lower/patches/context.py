"""What all parts of one lowering share."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import SequenceMatcher

from engine.cuir.changes.edits import Diff, EditKind
from engine.cuir.nodes import Module, Path
from engine.lift.cpp.provenance import Lifted, Parts, Range
from engine.lift.cpp.tokens import Tokens
from engine.lower.patches.source_patch import Patch, Source, apply_patches
from engine.lower.spelling.templates import Templates

_WORD = re.compile(rb"\w")


@dataclass(slots=True)
class Context:
    """The lifted source, the target, and what the diff says about every path."""

    lifted: Lifted
    source: Source
    target: Module
    diff: Diff
    templates: Templates
    back: dict[Path, Path] = field(default_factory=dict)  # new path -> old path
    moved: set[Path] = field(default_factory=set)  # old paths

    def __post_init__(self) -> None:
        self.back = {new: old for old, new in self.diff.pairs.items()}
        self.moved = {
            e.old_path
            for e in self.diff.edits
            if e.kind is EditKind.MOVE and e.old_path is not None
        }

    @property
    def parts(self) -> Parts:
        return self.lifted.parts

    def statement(self, path: Path) -> Range:
        """The bytes of a statement or function."""
        return self.lifted.provenance[path].range

    def text(self, place: Range) -> str:
        """Source text with `\\n` line endings."""
        return self.plain(place.of(self.source.data))

    @staticmethod
    def plain(data: bytes) -> str:
        return data.decode("utf-8", "surrogateescape").replace("\r\n", "\n")

    def bytes(self, text: str) -> bytes:
        """New text with the source's line endings."""
        return text.replace("\n", self.source.eol).encode("utf-8", "surrogateescape")

    def part_text(self, path: Path, role: str) -> str:
        """The source's text of a part of what stands at `path`; empty where it has none."""
        place = self.parts.get((path, role))
        return "" if place is None else self.text(place)

    def patch(self, place: Range, text: str) -> Patch:
        """`text` in place of the source there, with a space where words would run together:
        `return(n)` has none before what it returns."""
        data = self.source.data
        left, right = data[place.start - 1 : place.start], data[place.end : place.end + 1]
        if _WORD.fullmatch(left) and _WORD.fullmatch(text[:1].encode()):
            text = f" {text}"
        if _WORD.fullmatch(right) and _WORD.fullmatch(text[-1:].encode()):
            text = f"{text} "
        return Patch(place.start, place.end, self.bytes(text))

    def chunk(self, start: int, end: int, patches: Iterable[Patch]) -> str:
        """Source text of bytes `start` to `end` with the patches inside of it made."""
        return self.plain(apply_patches(self.source.data, patches, start, end))

    def token_patches(self, place: Range, text: str) -> list[Patch]:
        """The patches that make the tokens at `place` those of `text`; equal ones stay."""
        before = self.source.tokens_in(place)
        data = text.encode("utf-8", "surrogateescape")
        after = Tokens(data).all
        matcher = SequenceMatcher(
            None, [t.text for t in before], [t.text for t in after], autojunk=False
        )
        out: list[Patch] = []
        for tag, i1, i2, j1, j2 in matcher.get_opcodes():
            if tag == "equal":
                continue
            new = self.plain(data[after[j1].start : after[j2 - 1].end]) if j1 < j2 else ""
            if i1 < i2:
                out.append(Patch(before[i1].start, before[i2 - 1].end, self.bytes(new)))
                continue
            at = before[i1].start if i1 < len(before) else place.end
            space = " " if i1 < len(before) else ""
            out.append(Patch(at, at, self.bytes(new + space if space else f" {new}")))
        return out

    def lines_of(self, path: Path) -> Range:
        """What goes when the statement or function at `path` goes: its whole lines."""
        return self.source.whole_lines(self.statement(path))

    def removal(self, path: Path) -> Patch:
        place = self.lines_of(path)
        return Patch(place.start, place.end, b"")
