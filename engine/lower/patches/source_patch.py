"""The source as bytes: its line endings and indentation, and patches to it."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from engine.lift.cpp.provenance import BOM, Range
from engine.lift.cpp.tokens import Token, Tokens

WIDTH = 100  # columns of new lines
_CONTINUED = "    "


@dataclass(frozen=True, slots=True)
class Patch:
    """Bytes `start` up to `end` become `text`. Patches at one place keep their order.

    `grows`: what is put in belongs to the statement that ends there (an `else`).
    """

    start: int
    end: int
    text: bytes
    grows: bool = False


class PatchError(ValueError):
    """Two patches of the same bytes."""


def apply_patches(source: bytes, patches: Iterable[Patch], start: int = 0, end: int = -1) -> bytes:
    """`source[start:end]` with the patches made. Raises `PatchError` where they overlap."""
    stop = len(source) if end < 0 else end
    out: list[bytes] = []
    at = start
    for patch in sorted(patches, key=lambda p: (p.start, p.end)):
        if patch.start < at or patch.end > stop:
            raise PatchError(f"patches overlap at byte {patch.start}")
        out += (source[at : patch.start], patch.text)
        at = patch.end
    out.append(source[at:stop])
    return b"".join(out)


@dataclass(slots=True)
class Source:
    """The expert's text and what its own style is."""

    data: bytes
    tokens: Tokens
    eol: str
    unit: str
    starts: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, data: bytes, indents: Iterable[bytes] = ()) -> Source:
        """`indents` are the indentations of the statements, from which the unit is told."""
        text = b" " * len(BOM) + data[len(BOM) :] if data.startswith(BOM) else data
        crlf = data.count(b"\r\n")
        eol = "\r\n" if crlf * 2 > data.count(b"\n") else "\n"
        starts = [0]
        for line in data.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        return cls(data, Tokens(text), eol, _unit(indents), starts)

    # --- lines -------------------------------------------------------------------------------

    def line_start(self, offset: int) -> int:
        start = self.starts[max(bisect_right(self.starts, offset) - 1, 0)]
        return len(BOM) if start == 0 and self.data.startswith(BOM) else start

    def line_end(self, offset: int) -> int:
        """After the line's own ending."""
        index = bisect_right(self.starts, offset)
        return self.starts[index] if index < len(self.starts) else len(self.data)

    def indent(self, offset: int) -> str:
        """The blanks that begin the line of `offset`."""
        start = self.line_start(offset)
        line = self.data[start : self.line_end(offset)]
        blanks = line[: len(line) - len(line.lstrip(b" \t"))]
        return blanks.decode("ascii")

    def alone_before(self, offset: int) -> bool:
        return not self.data[self.line_start(offset) : offset].strip()

    def rest_of_line(self, offset: int) -> int | None:
        """The end of the line when only blanks and whole comments follow on it, else None."""
        end = self.line_end(offset)
        stop = offset
        for begin, close in self.tokens.comments:
            if begin < offset or begin >= end:
                continue
            if self.data[stop:begin].strip():
                return None
            if close > end:
                return None
            stop = close
        return end if not self.data[stop:end].strip() else None

    def whole_lines(self, place: Range) -> Range:
        """The lines of a statement, with the comment beside it. Where others stand on its lines,
        the statement itself with the blanks on one side of it."""
        end = self.rest_of_line(place.end)
        if end is not None and self.alone_before(place.start):
            return Range(self.line_start(place.start), end)
        left, right = place.start, place.end
        if self.alone_before(place.start):
            while self.data[right : right + 1] in (b" ", b"\t"):
                right += 1
        else:
            while self.data[left - 1 : left] in (b" ", b"\t"):
                left -= 1
        return Range(left, right)

    def without_doubled_blanks(self, patches: Iterable[Patch]) -> list[Patch]:
        """The patches; where lines go between two blank ones, the lower blank one goes too.

        So it is below a line that opens a block.
        """
        ordered = sorted(patches, key=lambda p: (p.start, p.end))
        written = {p.start for p in ordered if p.text}
        out: list[Patch] = []
        run = -1  # where the lines that go began
        for at, patch in enumerate(ordered):
            out.append(patch)
            if patch.text or patch.start == patch.end:
                continue
            if not out[:-1] or out[-2].end != patch.start or out[-2].text:
                run = patch.start
            follows = at + 1 < len(ordered) and ordered[at + 1].start == patch.end
            if not follows and run not in written and self._blank_around(run, patch.end):
                out[-1] = Patch(patch.start, self.line_end(patch.end), b"")
        return out

    def _blank_around(self, start: int, end: int) -> bool:
        """Whether whole lines from `start` to `end` have a blank line below and one above."""
        if start == 0 or end >= len(self.data) or not self.alone_before(start):
            return False
        if self.line_start(start) != start or self.line_start(end) != end:
            return False
        above = self.data[self.line_start(start - 1) : start].strip()
        below = self.data[end : self.line_end(end)].strip()
        return not below and (not above or above.endswith(b"{"))

    # --- places ------------------------------------------------------------------------------

    def after(self, begin: int, limit: int) -> int:
        """Where something new goes that comes after `begin` and before `limit`.

        Between the two, blocks may close and open that CuIR does not have (`if constexpr`): new
        text goes after what closes and before what opens.
        """
        depth, lowest, place = 0, 0, begin
        between = self.tokens.inside(begin, limit)
        for at, token in enumerate(between):
            depth += (token.text == "{") - (token.text == "}")
            following = between[at + 1].text if at + 1 < len(between) else ""
            if token.text == "}" and depth <= lowest and following != "else":
                if depth < lowest or lowest < 0:
                    place = token.end
                lowest = depth
        return place

    def tokens_in(self, place: Range) -> list[Token]:
        return self.tokens.inside(place.start, place.end)


def _unit(indents: Iterable[bytes]) -> str:
    """One level of indentation: a tab, or the step between the statements' indentations."""
    found = {i for i in indents if i}
    if any(b"\t" in i for i in found):
        return "\t"
    widths = sorted({len(i) for i in found})
    steps = Counter(b - a for a, b in zip([0, *widths], widths, strict=False))
    return " " * (max(steps, key=lambda s: (steps[s], -s)) if steps else 2)


def reindent(text: str, old: str, new: str) -> str:
    """`text` moved from indentation `old` to `new`; its first line starts at the statement."""
    if old == new:
        return text
    lines = text.split("\n")
    moved = [new + line[len(old) :] if line.startswith(old) else line for line in lines[1:]]
    return "\n".join([lines[0], *moved])


# --- long lines ------------------------------------------------------------------------------


def fit(text: str, indent: str, unit: str) -> str:
    """A one-line statement, broken into lines where it is too long for one.

    First a lambda's body gets a line of its own, then lines break after commas and operators, at
    the lowest nesting.
    """
    if len(indent) + len(text) <= WIDTH:
        return text
    opening = text.find(") { return ")
    closing = text.rfind("; }")
    if "[&](" in text and 0 <= opening < closing:
        head = break_line(text[: opening + 3], indent, unit)
        body = break_line(text[opening + 4 : closing + 1], indent + unit, unit)
        return f"{head}\n{indent}{unit}{body}\n{indent}{text[closing + 2 :]}"
    return break_line(text, indent, unit)


def break_line(text: str, indent: str, unit: str = "  ") -> str:
    """Broken at the best places; what goes on is indented by four more columns, or two tabs."""
    lines: list[str] = []
    further = 2 * unit if unit == "\t" else _CONTINUED
    pad = len(indent)
    while pad + len(text) > WIDTH:
        at = _best_break(text, WIDTH - pad)
        if at is None:
            break
        lines.append(text[:at].rstrip())
        text = text[at:].lstrip()
        pad = len(indent) + len(further)
    lines.append(text)
    return f"\n{indent}{further}".join(lines)


def _best_break(text: str, room: int) -> int | None:
    """The last break of the lowest nesting in the first `room` columns, not too near the start."""
    depth = 0
    best: tuple[int, int] | None = None
    for at, char in enumerate(text):
        if at > room:
            break
        tail = text[:at]
        if tail.endswith((", ", "&& ", "|| ", " + ", " = ")) or (
            text.startswith(("? ", ": "), at) and tail.endswith(" ")
        ):
            low = (depth, -at)
            if at > 20 and (best is None or low < best):
                best = low
        depth += (char in "([{") - (char in ")]}")
    return -best[1] if best is not None else None
