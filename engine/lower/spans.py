"""G3's own checks on a lowered text, by other code than the lowerer.

`allowed_spans` says from the op diff and the lifted provenance alone, before anything is lowered,
which bytes of the source may change; `verify_spans` holds the lowered text to it. What may change:

- a changed statement: its own bytes; of a loop or `if` only the header; of a function its header;
- a deleted or moved one: its lines, with the comment beside it and one blank line below;
- an inserted or moved one: bytes may come at the line starts between its neighbours, or right after
  the one before it;
- a block that gets or loses braces or an `else`: from its header to its end;
- where a variable gains or loses an assignment: the words of its declarations before its name;
- fields of the argument struct: the declaration that held them, and the line after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from engine.cuir.changes.diff import diff
from engine.cuir.changes.edits import FIELDS, Diff, Edit, EditKind
from engine.cuir.nodes import Assign, Function, If, Module, Path, Return, Stmt, blocks, walk
from engine.lift.cpp.provenance import Lifted, Range
from engine.lift.cpp.tokens import Tokens
from engine.lower.spelling.legal import legal


@dataclass(frozen=True, slots=True)
class Offence:
    """Bytes of the source that changed and must not have. Lines are 1-based."""

    place: Range
    line: int
    text: str

    def __str__(self) -> str:
        return f"line {self.line} of the source changed outside of the allowed spans: {self.text!r}"


def allowed_spans(lifted: Lifted, target: Module) -> tuple[Range, ...]:
    """The bytes of the source that lowering to `target` may change; empty ranges are places
    where bytes may come. Sorted, and joined where they touch."""
    wanted = legal(target)
    found = diff(lifted.module, wanted)
    return _joined(_Allowed(lifted, wanted, found).ranges()) if found else ()


def union(spans: Iterable[Sequence[Range]]) -> tuple[Range, ...]:
    """The spans that any of several specialisations allows."""
    return _joined([place for some in spans for place in some])


def verify_spans(source: bytes, lowered: bytes, allowed: Sequence[Range]) -> Offence | None:
    """None when `lowered` is `source` but for the allowed spans, else the first other change."""
    segments: list[Range] = []
    at = 0
    for place in _joined(allowed):
        segments.append(Range(at, place.start))
        at = place.end
    segments.append(Range(at, len(source)))
    if len(segments) == 1:
        return None if source == lowered else _offence(source, lowered, segments[0], 0)
    first, last = segments[0], segments[-1]
    if not lowered.startswith(first.of(source)):
        return _offence(source, lowered, first, 0)
    position = first.end
    tail = last.of(source)
    # What stands between allowed spans is found in order, each at the earliest place: if any
    # placement works, that one does.
    for segment in segments[1:-1]:
        found = lowered.find(segment.of(source), position)
        if found < 0:
            return _offence(source, lowered, segment, position)
        position = found + segment.end - segment.start
    if not lowered.endswith(tail) or len(lowered) - len(tail) < position:
        return _offence(source, lowered, last, position)
    return None


def _offence(source: bytes, lowered: bytes, segment: Range, position: int) -> Offence:
    text = segment.of(source)
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        held = lowered.startswith(text[:middle]) if not segment.start else (
            lowered.find(text[:middle], position) >= 0
        )  # fmt: skip
        low, high = (middle, high) if held else (low, middle - 1)
    start = min(segment.start + low, max(segment.end - 1, segment.start))
    end = source.find(b"\n", start)
    end = segment.end if end < 0 or end > segment.end else end
    begin = source.rfind(b"\n", 0, start) + 1
    shown = source[begin : max(end, start)].decode("utf-8", "replace").strip()
    return Offence(Range(start, max(end, start)), source.count(b"\n", 0, start) + 1, shown)


def _joined(places: Iterable[Range]) -> tuple[Range, ...]:
    out: list[Range] = []
    for place in sorted(places):
        if out and place.start <= out[-1].end:
            out[-1] = Range(out[-1].start, max(out[-1].end, place.end))
        else:
            out.append(place)
    return tuple(out)


class _Allowed:
    def __init__(self, lifted: Lifted, target: Module, found: Diff) -> None:
        self.lifted = lifted
        self.data = lifted.source
        self.parts = lifted.parts
        self.target = target
        self.found = found
        self.back = {new: old for old, new in found.pairs.items()}
        self.old_stmts: dict[Path, Stmt] = dict(walk(lifted.module))
        self.new_stmts: dict[Path, Stmt] = dict(walk(target))
        self.comments = Tokens(self.data).comments
        kinds = (EditKind.DELETE, EditKind.MOVE)
        self.leaves = {e.old_path for e in found.edits if e.kind in kinds}

    def ranges(self) -> list[Range]:
        out: list[Range] = []
        for edit in self.found.edits:
            if edit.path[0] == FIELDS:
                out += self.field(edit)
            elif len(edit.path) == 1:
                out += self.function(edit)
            else:
                out += self.statement(edit)
        return out + self.declarations() + self.results()

    def span(self, path: Path) -> Range:
        return self.lifted.provenance[path].range

    # --- lines -------------------------------------------------------------------------------

    def line_start(self, offset: int) -> int:
        return self.data.rfind(b"\n", 0, offset) + 1

    def next_line(self, offset: int) -> int:
        found = self.data.find(b"\n", offset)
        return len(self.data) if found < 0 else found + 1

    def lines(self, place: Range) -> Range:
        """The lines of `place`, and a blank one below; where others share its lines, `place` and
        the blanks around it."""
        start, end = self.line_start(place.start), self.next_line(place.end)
        before = self.data[start : place.start].removeprefix(b"\xef\xbb\xbf")
        behind = self.data[place.end : end].strip()
        beside = any(a >= place.end and b <= end and a < end for a, b in self.comments)
        if before.strip() or (behind and not (beside and behind[:2] in (b"//", b"/*"))):
            left, right = start + len(self.data[start : place.start].rstrip(b" \t")), place.end
            while self.data[right : right + 1] in (b" ", b"\t"):
                right += 1
            return Range(left if before.strip() else place.start, right)
        below = self.data[end : self.next_line(end)]
        return Range(start, end + (len(below) if below and not below.strip() else 0))

    def points(self, begin: int, limit: int) -> list[Range]:
        """Where something may come between two neighbours: after the first, and at line starts."""
        out = [Range(begin, begin)]
        at = self.next_line(begin)
        while at <= limit and at < len(self.data):
            if not any(a < at < b for a, b in self.comments):
                out.append(Range(at, at))
            at = self.next_line(at)
        # Blocks that CuIR does not have may close in between (`if constexpr`).
        between = self.data[begin:limit]
        out += [Range(begin + m.end(), begin + m.end()) for m in re.finditer(rb"\}", between)]
        return out

    # --- edits -------------------------------------------------------------------------------

    def field(self, edit: Edit) -> list[Range]:
        old = self.lifted.module.fields
        if edit.kind in (EditKind.CHANGE, EditKind.DELETE):
            assert edit.old_path is not None
            return [self.lines(self.span(edit.old_path))]
        out = [self.lines(self.span(edit.old_path))] if edit.old_path is not None else []
        assert edit.new_path is not None
        index = edit.new_path[1]
        assert isinstance(index, int)
        names = [f.name for f in self.target.fields]
        known = {f.name: i for i, f in enumerate(old)}
        before = next((known[n] for n in reversed(names[:index]) if n in known), None)
        behind = next((known[n] for n in names[index + 1 :] if n in known), None)
        if before is None:
            opening = self.parts[(FIELDS,), "body.open"].end
            return [*out, Range(opening, opening), *self.points(opening, self.next_line(opening))]
        place = self.span((FIELDS, before))
        if behind is not None and self.span((FIELDS, behind)) == place:
            return [*out, place]
        return [*out, *self.points(place.end, self.next_line(place.end))]

    def function(self, edit: Edit) -> list[Range]:
        out: list[Range] = []
        if edit.kind is EditKind.CHANGE and edit.old_path is not None:
            return [self.parts[edit.old_path, "header"]]
        if edit.old_path is not None:
            out.append(self.lines(self.span(edit.old_path)))
        if edit.new_path is not None:
            order = [f.name for f in self.target.functions]
            before = order[: order.index(str(edit.new_path[0]))]
            stays = [
                self.back[(n,)] for n in before
                if (n,) in self.back and self.back[(n,)] not in self.leaves
            ]  # fmt: skip
            anchor = stays[-1] if stays else (FIELDS,)
            end = self.span(anchor).end if anchor in self.lifted.provenance else 0
            if anchor == (FIELDS,):
                end = self.data.find(b";", end) + 1
            place = self.next_line(end)
            out.append(Range(place, place))
        return out

    def statement(self, edit: Edit) -> list[Range]:
        out: list[Range] = []
        if edit.old_path is not None:
            if edit.kind is EditKind.CHANGE:
                inside = any(edit.old_path[:k] in self.leaves for k in range(1, len(edit.old_path)))
                header = self.parts.get((edit.old_path, "header"))
                out.append(header or self.span(edit.old_path))
                return [] if inside else out
            out += self.leaving(edit.old_path)
        if edit.new_path is not None:
            out += self.coming(edit.new_path)
        return out

    def leaving(self, path: Path) -> list[Range]:
        """A statement that goes takes its lines; the last one of an else takes the else."""
        out = [self.lines(self.span(path))]
        parent, branch = path[:-2], path[-2]
        if branch == "other" and parent in self.found.pairs:
            stmt = self.new_stmts.get(self.found.pairs[parent])
            if isinstance(stmt, If) and not stmt.other:
                out.append(Range(self.parts[parent, "then"].end, self.parts[parent, "other"].end))
        return out + self.unbraced(path[:-1])

    def unbraced(self, old_at: Path) -> list[Range]:
        """A block without braces gets them when more or less than one statement stands in it."""
        if len(old_at) == 1:
            return []
        parent, branch = old_at[:-1], str(old_at[-1])
        if (parent, f"{branch}.open") in self.parts or (parent, branch) not in self.parts:
            return []
        head = self.parts[parent, "else" if branch == "other" else "header"]
        return [Range(head.end, self.parts[parent, branch].end)]

    def coming(self, path: Path) -> list[Range]:
        """Where a statement may come: between its neighbours of the block that was there."""
        new_at = path[:-1]
        old_at = self.old_block(new_at)
        if old_at is None:
            return []  # inside of something that comes as a whole
        braces = self.unbraced(old_at)
        if braces:
            return braces
        parent, branch = (old_at[:-1], str(old_at[-1])) if len(old_at) > 1 else (old_at, "body")
        opening = self.parts.get((parent, f"{branch}.open"))
        if opening is None:
            end = self.parts[parent, "then"].end  # an else that was not there
            return [Range(end, end)]
        begin, limit = opening.end, self.parts[parent, f"{branch}.close"].start
        index = path[-1]
        assert isinstance(index, int)
        position = index + 1
        while (*new_at, position) in self.new_stmts:
            old = self.stays((*new_at, position), old_at)
            if old is not None:
                limit = self.span(old).start
                break
            position += 1
        for position in range(index - 1, -1, -1):
            old = self.stays((*new_at, position), old_at)
            if old is not None:
                begin = self.span(old).end
                break
        return self.points(begin, limit)

    def stays(self, new: Path, old_at: Path) -> Path | None:
        old = self.back.get(new)
        return old if old is not None and old not in self.leaves and old[:-1] == old_at else None

    def old_block(self, new_at: Path) -> Path | None:
        """The block of the source that the block at `new_at` was, unless it moved or is new."""
        if len(new_at) == 1:
            return self.back.get(new_at)
        parent = self.back.get(new_at[:-1])
        if parent is None or any(parent[:k] in self.leaves for k in range(1, len(parent) + 1)):
            return None
        return (*parent, new_at[-1])

    # --- what follows from edits -------------------------------------------------------------

    def declarations(self) -> list[Range]:
        """The words before a variable's name, where its assignments are not the same any more."""
        out: list[Range] = []
        changed = {e.old_path for e in self.found.edits} | {e.new_path for e in self.found.edits}
        for path, stmt in self.old_stmts.items():
            target = self.parts.get((path, "target"))
            if not isinstance(stmt, Assign) or target is None or path not in self.found.pairs:
                continue
            name, function = stmt.target, str(path[0])
            old = {p for p, s in self.old_stmts.items() if p[0] == function and _assigns(s, name)}
            after = str(self.found.pairs[path][0])
            new = {p for p, s in self.new_stmts.items() if p[0] == after and _assigns(s, name)}
            if {self.found.pairs.get(p) for p in old} == new and not (old | new) & changed:
                continue
            words = self.parts.get((path, "type"))
            out.append(Range(words.start if words else target.start, target.start))
        return out

    def results(self) -> list[Range]:
        """The result type of a device function whose returns changed."""
        out: list[Range] = []
        touched = {
            str(edit.path[0])
            for edit in self.found.edits
            for node in (edit.old, edit.new)
            if len(edit.path) > 1 and edit.path[0] != FIELDS and _returns(node)
        }
        for function in self.target.functions:
            old = self.back.get((function.name,))
            if function.kind != "device" or function.name not in touched or old is None:
                continue
            header = self.parts[old, "header"]
            template = self.parts.get((old, "template"))
            start = template.end if template is not None else header.start
            out.append(Range(start, self.parts[old, "name"].start))
        return out


def _assigns(stmt: Stmt, name: str) -> bool:
    return isinstance(stmt, Assign) and stmt.target == name


def _returns(node: object) -> bool:
    if isinstance(node, Return):
        return True
    if node is None or isinstance(node, Function | tuple):
        return False
    return any(_returns(s) for _, body in blocks(node) for s in body)  # type: ignore[arg-type]
