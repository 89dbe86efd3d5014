"""The edits of a block of statements: what stays, comes, goes and changes, in place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.cuir.matching import shell
from engine.cuir.nodes import (
    Assign,
    Expr,
    For,
    If,
    Opaque,
    Path,
    Stmt,
    blocks,
    next_of,
    walk_block,
)
from engine.cuir.static.conversions import NUMBERS
from engine.lift.cpp.provenance import Range
from engine.lower.patches.context import Context
from engine.lower.patches.expressions import ExpressionPatcher
from engine.lower.patches.source_patch import WIDTH, Patch, reindent
from engine.lower.patches.statements import Writer, compound, downwards
from engine.lower.spelling.cpp_kinds import UNKNOWN
from engine.lower.spelling.emit import Emitter
from engine.lower.spelling.forms import Form

_IN_PLACE = WIDTH + 20  # columns that a patched line may have before it is written anew


class BlockLowerer:
    """Lowers the statements of one function. `old_stmts` are those that the source has."""

    def __init__(
        self,
        context: Context,
        emitter: Emitter,
        forms: Mapping[Path, Form],
        old_stmts: Mapping[Path, Stmt],
    ) -> None:
        self.context = context
        self.emitter = emitter
        self.kinds = emitter.kinds
        self.forms = forms
        self.old_stmts = old_stmts
        self.writer = Writer(emitter, forms, context.source.unit, self.block_text)
        self.expressions = ExpressionPatcher(context, emitter)

    def braces(self, path: Path, role: str) -> Range | None:
        """From after the opening brace to the closing one; None when there are no braces."""
        opening = self.context.parts.get((path, f"{role}.open"))
        closing = self.context.parts.get((path, f"{role}.close"))
        return Range(opening.end, closing.start) if opening and closing else None

    def stays(self, old_at: Path, new: Path) -> Path | None:
        """The old path of the statement at `new`, when it stays in the block at `old_at`."""
        old = self.context.back.get(new)
        if old is None or old in self.context.moved or old[:-1] != old_at:
            return None
        return old

    def block(
        self,
        old_at: Path,
        old_body: tuple[Stmt, ...],
        new_at: Path,
        new_body: tuple[Stmt, ...],
        inside: Range,
        out: list[Patch],
    ) -> None:
        """The edits of a block that stays; `inside` is what its braces hold."""
        gone = self.runs(old_at, len(old_body))
        pending: list[tuple[Path, Stmt]] = []
        for position, stmt in enumerate(new_body):
            path = (*new_at, position)
            old = self.stays(old_at, path)
            if old is None:
                pending.append((path, stmt))
                continue
            index = int(old[-1])
            self.insert(pending, old_at, old_body, index - 1, inside, gone, out)
            pending = []
            self.kept(old, self.old_stmts[old], path, stmt, out)
        self.insert(pending, old_at, old_body, len(old_body) - 1, inside, gone, out)
        out += [self.patch(place, "") for place in dict.fromkeys(gone.values())]

    def runs(self, old_at: Path, count: int) -> dict[int, Range]:
        """What goes with each old statement that leaves; neighbours on one line go as one."""
        source = self.context.source
        runs: list[tuple[list[int], Range]] = []
        for i in range(count):
            if not self.leaves((*old_at, i)):
                continue
            place = self.context.statement((*old_at, i))
            if runs and runs[-1][0][-1] == i - 1:
                before = runs[-1][1]
                if source.line_start(before.end) == source.line_start(place.start):
                    runs[-1] = ([*runs[-1][0], i], Range(before.start, place.end))
                    continue
            runs.append(([i], place))
        return {i: source.whole_lines(place) for members, place in runs for i in members}

    def insert(
        self,
        pending: list[tuple[Path, Stmt]],
        old_at: Path,
        old_body: tuple[Stmt, ...],
        anchor: int,
        inside: Range,
        gone: dict[int, Range],
        out: list[Patch],
    ) -> None:
        """Puts new statements after the old statement number `anchor` of their block."""
        if not pending:
            return
        source = self.context.source
        begin = inside.start if anchor < 0 else self.context.statement((*old_at, anchor)).end
        limit = inside.end
        if anchor + 1 < len(old_body):
            limit = self.context.statement((*old_at, anchor + 1)).start
        place = source.after(begin, limit)
        indent = self.indent_at(old_at, old_body, anchor, inside.start, place)
        texts = [self.new_text(path, stmt, indent) for path, stmt in pending]
        line_end = source.rest_of_line(place)
        if line_end is not None and (anchor >= 0 or place != inside.start or line_end <= limit):
            lines = "".join(f"{indent}{text}\n" for text in texts)
            out.append(self.patch(Range(line_end, line_end), lines))
            return
        lines = "".join(f"\n{indent}{text}" for text in texts)
        room = gone.get(anchor)
        if room is not None and room.start < place <= room.end:
            # The statement before goes and others share its lines: the new text takes its place.
            if source.alone_before(room.start):
                lines = "".join(f"{text}\n{indent}" for text in texts)
            out.append(self.patch(Range(room.start, room.start), lines))
            return
        closing = source.data[place : inside.end].strip(b" \t")
        if not closing and source.line_start(place) == source.line_start(inside.end):
            lines += f"\n{source.indent(place)}"
        out.append(self.patch(Range(place, place), lines))

    def leaves(self, old: Path) -> bool:
        """Whether the old statement is deleted or moved."""
        return old not in self.context.diff.pairs or old in self.context.moved

    def indent_at(
        self, old_at: Path, old_body: tuple[Stmt, ...], anchor: int, begin: int, place: int
    ) -> str:
        """The indentation of what comes at `place`, as the nearest statement beside it has it.

        Beside it is what stands in the same braces: `if constexpr` has some that CuIR has not.
        """
        source = self.context.source
        depth = self.depth(begin, place)
        order = sorted(range(len(old_body)), key=lambda i: (abs(i - anchor), i > anchor))
        for i in order:
            start = self.context.statement((*old_at, i)).start
            if source.alone_before(start) and self.depth(begin, start) == depth:
                return source.indent(start)
        parent = old_at[:-1] if len(old_at) > 1 else old_at
        return source.indent(self.context.statement(parent).start) + source.unit * (1 + depth)

    def depth(self, begin: int, end: int) -> int:
        """How many braces open between two bytes."""
        between = self.context.source.tokens.inside(begin, end)
        return sum((t.text == "{") - (t.text == "}") for t in between)

    def new_text(self, path: Path, stmt: Stmt, indent: str) -> str:
        """A statement that was not here: new, or moved from elsewhere."""
        old = self.context.back.get(path)
        if old is None or old not in self.old_stmts:
            return self.writer.stmt(stmt, path, indent)
        return self.moved_text(old, path, stmt, indent)

    def moved_text(self, old: Path, path: Path, stmt: Stmt, indent: str) -> str:
        """The source's own text of a statement, edited inside, at another indentation."""
        inner: list[Patch] = []
        self.kept(old, self.old_stmts[old], path, stmt, inner)
        place = self.context.statement(old)
        text = self.context.chunk(place.start, place.end, inner)
        return reindent(text, self.context.source.indent(place.start), indent)

    def block_text(self, at: Path, body: tuple[Stmt, ...], indent: str) -> str:
        """The lines of a block that was not here, each after a line ending."""
        return "".join(
            f"\n{indent}{self.new_text((*at, i), stmt, indent)}" for i, stmt in enumerate(body)
        )

    # --- a statement that stays --------------------------------------------------------------

    def kept(self, old: Path, was: Stmt, path: Path, stmt: Stmt, out: list[Patch]) -> None:
        if isinstance(stmt, For | If):
            self.kept_block(old, was, path, stmt, out)
            return
        patches = self.leaf_patches(old, was, path, stmt)
        if not patches:
            return
        place = self.context.statement(old)
        text = self.context.chunk(place.start, place.end, patches)
        width = len(self.context.source.indent(place.start)) + len(text)
        if (
            "\n" not in text
            and width > _IN_PLACE
            and len(text) > len(place.of(self.context.source.data))
        ):
            fitted = self.anew(old, path, stmt)
            if "\n" in fitted:
                patches = [self.patch(place, fitted)]
        out += patches

    def anew(self, old: Path, path: Path, stmt: Stmt) -> str:
        """The statement written again, keeping what it can of the source's text."""
        indent = self.context.source.indent(self.context.statement(old).start)
        emitter = replace(self.emitter, reuse=self.expressions.reuse_of(old, self.old_stmts[old]))
        return replace(self.writer, emitter=emitter).stmt(stmt, path, indent)

    def leaf_patches(self, old: Path, was: Stmt, path: Path, stmt: Stmt) -> list[Patch]:
        place = self.context.statement(old)
        out: list[Patch] = []
        if isinstance(was, Assign) and isinstance(stmt, Assign):
            declared = self.declaration_patches(old, was, path, stmt)
            if declared is None or not self.value_patches(old, was, stmt, out):
                return [self.patch(place, self.anew(old, path, stmt))]
            return declared + out
        if was == stmt:
            return []
        if isinstance(was, Opaque) and isinstance(stmt, Opaque):
            return self.context.token_patches(place, stmt.text)
        for role, a, b in _roles(was, stmt):
            if not self.expressions.patch(old, role, a, b, out):
                return [self.patch(place, self.anew(old, path, stmt))]
        if not out:
            return [self.patch(place, self.anew(old, path, stmt))]
        return out

    def value_patches(self, old: Path, was: Assign, stmt: Assign, out: list[Patch]) -> bool:
        if was.value == stmt.value:
            return True
        operator = self.context.part_text(old, "operator")
        if operator != "=":
            before, after = compound(was), compound(stmt)
            same = before is not None and after is not None and before[0] == after[0]
            if not same or f"{before and before[0]}=" != operator:
                return False
        return self.expressions.patch(old, "value", was.value, stmt.value, out)

    def declaration_patches(
        self, old: Path, was: Assign, path: Path, stmt: Assign
    ) -> list[Patch] | None:
        """Edits of what stands left of `=`. None when the statement must be written anew."""
        parts, form = self.context.parts, self.forms[path]
        target, type_place = parts.get((old, "target")), parts.get((old, "type"))
        if target is None:
            return None if was != stmt else []
        out: list[Patch] = []
        if self.emitter.names.of(stmt.target) != self.context.text(target):
            out.append(self.patch(target, self.emitter.names.of(stmt.target)))
        if form.declares != (type_place is not None):
            if form.declares:
                if self.context.part_text(old, "operator") != "=":
                    return None
                text = f"{self.writer.type(stmt.target, form)} "
                out.append(self.patch(Range(target.start, target.start), text))
            else:
                assert type_place is not None
                out.append(self.patch(Range(type_place.start, target.start), ""))
        elif type_place is not None:
            text = self.context.text(type_place)
            wanted = self.wanted_type(text, stmt.target, form)
            if wanted != text:
                out.append(self.patch(type_place, wanted))
        return out

    def wanted_type(self, text: str, target: str, form: Form) -> str:
        """The declared type as it must be now; unchanged where it still serves."""
        kind = self.kinds.locals.get(target, UNKNOWN)
        words = text.split()
        plain = " ".join(w for w in words if w not in ("const", "constexpr"))
        wrong = plain in ("int", "float", "bool", "long long") and kind in NUMBERS
        if (
            wrong
            and self.writer.type(target, replace(form, constant=False)).split()[-1]
            != plain.split()[-1]
        ):
            return self.writer.type(target, form)
        if form.reassigned and len(words) != len(plain.split()):
            # A constexpr variable that is assigned again is a plain one.
            return plain
        return text

    def kept_block(self, old: Path, was: Stmt, path: Path, stmt: Stmt, out: list[Patch]) -> None:
        if shell(was) != shell(stmt):
            self.block_header(old, was, stmt, out)
        before = dict(blocks(was))
        for branch, body in blocks(stmt):
            old_at, new_at = (*old, branch), (*path, branch)
            if before[branch] == body and not self.must_look(new_at, body):
                continue
            inside = self.braces(old, branch)
            if inside is not None and (body or branch != "other"):
                self.block(old_at, before[branch], new_at, body, inside, out)
            elif self.alone_stays(old_at, before[branch], new_at, body):
                inner = before[branch][0]
                self.kept((*old_at, 0), inner, (*new_at, 0), body[0], out)
            elif branch == "other" and isinstance(stmt, If):
                self.other_branch(old, was, path, stmt, out)
            else:
                self.brace(old, branch, new_at, body, out)

    def must_look(self, at: Path, body: tuple[Stmt, ...]) -> bool:
        """Whether an unchanged block may hold a statement whose form changes."""
        return any(isinstance(s, Assign) for _, s in walk_block(body, at))

    def alone_stays(
        self, old_at: Path, before: tuple[Stmt, ...], new_at: Path, body: tuple[Stmt, ...]
    ) -> bool:
        return len(before) == len(body) == 1 and self.stays(old_at, (*new_at, 0)) is not None

    def block_header(self, old: Path, was: Stmt, stmt: Stmt, out: list[Patch]) -> None:
        patches: list[Patch] = []
        done = True
        if isinstance(was, For) and isinstance(stmt, For):
            done = was.var == stmt.var and _same_update(was.step, stmt.step)
        done = done and all(
            self.expressions.patch(old, role, a, b, patches) for role, a, b in _roles(was, stmt)
        )
        if done and patches:
            out += patches
            return
        header = self.context.parts[old, "header"]
        writer = replace(
            self.writer, emitter=replace(self.emitter, reuse=self.expressions.reuse_of(old, was))
        )
        if isinstance(stmt, For):
            text = writer.for_header(stmt.var, stmt.start, stmt.stop, stmt.step)
        else:
            assert isinstance(stmt, If)
            text = f"if ({writer.emitter.text(stmt.cond)})"
        out.append(self.patch(header, text))

    def other_branch(self, old: Path, was: Stmt, path: Path, stmt: If, out: list[Patch]) -> None:
        """An else that comes, goes, or was an `else if` and holds more now."""
        parts = self.context.parts
        indent = self.context.source.indent(self.context.statement(old).start)
        then_end = parts[old, "then"].end
        had = parts.get((old, "other"))
        if had is None:
            text = self.writer.else_(stmt, path, indent)
            if (old, "then.close") not in parts:
                text = f"\n{indent}{text.strip()}"
            out.append(Patch(then_end, then_end, self.context.bytes(text), grows=True))
        elif not stmt.other:
            out.append(self.patch(Range(then_end, had.end), ""))
        else:
            self.brace(old, "other", (*path, "other"), stmt.other, out)

    def brace(
        self, old: Path, branch: str, new_at: Path, body: tuple[Stmt, ...], out: list[Patch]
    ) -> None:
        """A single statement without braces becomes a block."""
        source, parts = self.context.source, self.context.parts
        place = parts[old, branch]
        head = parts[old, "else" if branch == "other" else "header"]
        indent = source.indent(self.context.statement(old).start)
        inner = self.block_text(new_at, body, indent + source.unit)
        gap = Range(head.end, place.start)
        if not gap.of(source.data).strip():
            text = f" {{{inner}\n{indent}}}"
            out.append(self.patch(Range(head.end, place.end), text))
            return
        out.append(self.patch(Range(head.end, head.end), " {"))
        out.append(self.patch(place, f"{inner.lstrip()}\n{indent}}}"))

    def patch(self, place: Range, text: str) -> Patch:
        return Patch(place.start, place.end, self.context.bytes(text))


def _roles(was: Stmt, stmt: Stmt) -> list[tuple[str, Expr, Expr]]:
    """The expressions of two statements of one kind that differ, with their roles."""
    pairs: list[tuple[str, Expr | None, Expr | None]] = []
    for role, name in (
        ("call", "call"), ("start", "start"), ("stop", "stop"), ("step", "step"),
        ("condition", "cond"), ("value", "value"),
    ):  # fmt: skip
        if hasattr(was, name) and hasattr(stmt, name):
            pairs.append((role, getattr(was, name), getattr(stmt, name)))
    return [(r, a, b) for r, a, b in pairs if a is not None and b is not None and a != b]


def _same_update(a: Expr, b: Expr) -> bool:
    """Whether two loops' variables change by the same operator: `+=`, `-=` or `=`."""
    return downwards(a) == downwards(b) and (next_of(a) is None) == (next_of(b) is None)
