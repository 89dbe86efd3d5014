"""What all parts of one lowering share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from engine.cuir.diff import Diff, EditKind
from engine.cuir.nodes import Module, Path
from engine.lift.provenance import Lifted, Parts, Range
from engine.lower.templates import Templates
from engine.lower.text import Patch, Source, apply_patches


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

    def function_end(self, name: str) -> int:
        return self.lifted.provenance[(name,)].end

    def text(self, place: Range) -> str:
        """Source text with `\\n` line endings."""
        return self.plain(place.of(self.source.data))

    @staticmethod
    def plain(data: bytes) -> str:
        return data.decode("utf-8", "surrogateescape").replace("\r\n", "\n")

    def bytes(self, text: str) -> bytes:
        """New text with the source's line endings."""
        return text.replace("\n", self.source.eol).encode("utf-8", "surrogateescape")

    def chunk(self, start: int, end: int, patches: Iterable[Patch]) -> str:
        """Source text of bytes `start` to `end` with the patches inside of it made."""
        return self.plain(apply_patches(self.source.data, patches, start, end))

    def lines_of(self, path: Path) -> Range:
        """What goes when the statement or function at `path` goes: its whole lines."""
        return self.source.whole_lines(self.statement(path))

    def removal(self, path: Path) -> Patch:
        place = self.lines_of(path)
        return Patch(place.start, place.end, b"")
