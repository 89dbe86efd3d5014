"""Where every op came from: byte ranges in the source, and the parts of a statement.

Two tables leave the lifter. `provenance` gives one `Span` per statement, function and argument
field. `parts` gives the byte range of each part that a lowerer may replace or insert beside.

Paths are those of `engine.cuir.nodes` (statements, functions), plus `("Args",)` for the argument
struct and `("Args", i)` for its field number `i`.

Roles in `parts`, by what stands at the path (a role is absent where the source has no such part):

- every statement: `statement` (full text with its `;` or closing brace), `indent` (the blanks
  between the start of the line and the statement; absent when something else stands before it).
- Assign: `target` (the name), `type` (`const auto`, `constexpr int`; absent in `x = e;`),
  `value` (right side), `operator` (`=`, `+=`, `++`).
- Do: `call`. Return: `value`.
- For: `header` (`for (...)`), `var`, `start`, `stop`, `step`, `body` (with its braces, or the
  single statement), `body.open` and `body.close` (the braces).
- If: `header` (`if (...)`), `condition`, `then`, `then.open`, `then.close`, `else` (the keyword),
  `other`, `other.open`, `other.close` (no braces in `else if`: `other` is the nested `if`).
- functions: `header` (from `template` to before the brace), `template` (`template <...>`),
  `consts` (between `<` and `>`), `const0`, `const1`, ..., `launch_bounds`, `threads`, `min_blocks`,
  `name`, `params` (between the parentheses), `param0`, ..., `body`, `body.open`, `body.close`.
- the argument struct: `name`, `body`, `body.open`, `body.close`; its fields: `name`, `type`,
  `statement` (the declaration, which several fields may share), `indent`.

Below an expression's role the same tree as in CuIR goes on: `value/1/0` is the range of child 0 of
child 1 of the value, counted as in `engine.cuir.nodes.children`. A lambda has `.../params` too (the
range between its parentheses). A subexpression that the source does not spell, such as an implicit
cast, has no role.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from engine.cuir.nodes import Module, Path
from engine.errors import Where

BOM = b"\xef\xbb\xbf"


class Range(NamedTuple):
    """Bytes `start` up to and without `end`."""

    start: int
    end: int

    def of(self, source: bytes) -> bytes:
        return source[self.start : self.end]


@dataclass(frozen=True, slots=True)
class Span:
    """A byte range with its lines, 1-based; the end is exclusive."""

    start: int
    end: int
    start_line: int
    end_line: int

    @property
    def range(self) -> Range:
        return Range(self.start, self.end)

    def of(self, source: bytes) -> bytes:
        return source[self.start : self.end]


class Lines:
    """Line and column of byte offsets in one source (LF, CRLF and CR end a line)."""

    __slots__ = ("_source", "_starts")

    def __init__(self, source: bytes) -> None:
        self._source = source
        starts = [len(BOM) if source.startswith(BOM) else 0]
        position = 0
        for line in source.splitlines(keepends=True):
            position += len(line)
            if line.endswith((b"\n", b"\r")):
                starts.append(position)
        self._starts = starts

    def place(self, offset: int) -> tuple[int, int]:
        """1-based line and code-point column of a byte offset."""
        index = max(bisect_right(self._starts, offset) - 1, 0)
        head = self._source[self._starts[index] : max(offset, self._starts[index])]
        return index + 1, len(head.decode("utf-8", errors="replace")) + 1

    def offset(self, line: int, column: int) -> int | None:
        """Where a line's 1-based column of bytes is; None past the last line."""
        return self._starts[line - 1] + column - 1 if line <= len(self._starts) else None

    def span(self, start: int, end: int) -> Span:
        return Span(start, end, self.place(start)[0], self.place(end)[0])

    def where(self, file: str, offset: int) -> Where:
        line, column = self.place(offset)
        return Where(file, line, column)

    def indent(self, offset: int) -> Range | None:
        """The blanks before `offset` on its line, or None when something else stands there."""
        start = self._starts[max(bisect_right(self._starts, offset) - 1, 0)]
        blanks = self._source[start:offset]
        return Range(start, offset) if not blanks.strip(b" \t\v\f") else None


@dataclass(frozen=True, slots=True)
class OpaqueOp:
    """An opaque op and why it is one, in words for the person."""

    path: Path
    span: Span
    reason: str


Parts = Mapping[tuple[Path, str], Range]


@dataclass(frozen=True, slots=True)
class Lifted:
    """One specialisation of a source as CuIR, with where each op came from.

    `specialisation` is the module's binding as text ("arch", then the launch template's names);
    `constants` are the compile-time values that the specialisation gives, per function.
    """

    module: Module
    provenance: Mapping[Path, Span]
    parts: Parts
    opaque: tuple[OpaqueOp, ...]
    source: bytes
    file: str
    specialisation: Mapping[str, str]
    constants: Mapping[str, Mapping[str, int | float | bool | str]]

    def text(self, path: Path, role: str = "statement") -> str:
        """The source text of a part. Raises KeyError when the source has no such part."""
        return self.parts[path, role].of(self.source).decode("utf-8", errors="replace")
