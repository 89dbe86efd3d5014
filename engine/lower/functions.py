"""The edits of one function: in place where it stays, as text where it is new."""

from __future__ import annotations

import re
from dataclasses import replace

from engine.cuir.matching import shell, signature
from engine.cuir.nodes import (
    Assign,
    Expr,
    For,
    Function,
    If,
    Path,
    Stmt,
    blocks,
    walk_block,
)
from engine.errors import LowerError
from engine.lift.provenance import Range
from engine.lower.context import Context
from engine.lower.emit import Emitter, Names
from engine.lower.expressions import ExpressionPatcher
from engine.lower.forms import Form, forms
from engine.lower.kinds import ARGS, NUMBERS, UNKNOWN, Kinds
from engine.lower.statements import (
    Writer,
    bounds_text,
    compound,
    const_text,
    downwards,
    header_text,
    param_text,
    result_text,
)  # fmt: skip
from engine.lower.text import WIDTH, Patch, reindent

_STREAM = re.compile(r"cudaStream_t\s+(\w+)")
_WORD = re.compile(r"[A-Za-z_]\w*")
_IN_PLACE = WIDTH + 20  # columns that a patched line may have before it is written anew


class FunctionLowerer:
    """Lowers one function of the target. `old` is what it was, or None when it is new."""

    def __init__(
        self, context: Context, function: Function, old: Function | None, kinds: Kinds
    ) -> None:
        self.context = context
        self.function = function
        self.old = old
        self.kinds = kinds
        self.old_stmts: dict[Path, Stmt] = {}
        if old is not None:
            self.old_stmts = dict(walk_block(old.body, (old.name,)))
        self.new_stmts = dict(walk_block(function.body, (function.name,)))
        self.old_params = self.source_params()
        names = self.spellings()
        self.emitter = Emitter(
            kinds, names, frozenset(f.name for f in context.target.functions), self.stream()
        )
        self.forms = forms(function, kinds)
        self.writer = Writer(self.emitter, self.forms, context.source.unit, self.block_text)
        self.expressions = ExpressionPatcher(context, self.emitter)

    # --- names -------------------------------------------------------------------------------

    def source_params(self) -> list[tuple[str, Range]]:
        """The C++ parameters but for the stream: the last word of each, and its place."""
        out: list[tuple[str, Range]] = []
        at = 0
        while self.old is not None and ((self.old.name,), f"param{at}") in self.context.parts:
            place = self.context.parts[(self.old.name,), f"param{at}"]
            text = self.context.text(place)
            if not _STREAM.search(text):
                out.append((_WORD.findall(text)[-1], place))
            at += 1
        return out

    def stream(self) -> str:
        if self.old is not None:
            found = _STREAM.search(self.part_text((self.old.name,), "params"))
            if found:
                return found.group(1)
        return "stream"

    def part_text(self, path: Path, role: str) -> str:
        place = self.context.parts.get((path, role))
        return "" if place is None else self.context.text(place)

    def spellings(self) -> Names:
        """The source's names where it has them; chosen ones for what is new."""
        functions = {f.name for f in self.context.target.functions}
        names = Names(self.context.templates.cxx_words() | functions)
        taken: set[str] = set(self.function.consts)
        if self.old is not None:
            for param, (name, _) in zip(self.old.params, self.old_params, strict=False):
                names.spelled[param.name] = name
            for path, stmt in self.old_stmts.items():
                role = "target" if isinstance(stmt, Assign) else "var"
                text = self.part_text(path, role)
                if text and isinstance(stmt, Assign | For):
                    names.spelled[stmt.target if isinstance(stmt, Assign) else stmt.var] = text
            taken |= set(names.spelled.values())
        for name in self.local_names():
            if name not in names.spelled:
                names.spelled[name] = names.choose(name, frozenset(taken - {name}))
                taken.add(names.spelled[name])
        return names

    def local_names(self) -> list[str]:
        order = [p.name for p in self.function.params if p.name != ARGS]
        for stmt in self.new_stmts.values():
            if isinstance(stmt, Assign | For):
                order.append(stmt.target if isinstance(stmt, Assign) else stmt.var)
        return list(dict.fromkeys(order))

    # --- the function as a whole -------------------------------------------------------------

    def whole(self) -> str:
        """The text of a new function."""
        head = header_text(self.function, self.writer, self.kinds)
        path: Path = (self.function.name,)
        body = self.block_text(path, self.function.body, self.context.source.unit)
        return f"{head} {{{body}\n}}"

    def patches(self) -> list[Patch]:
        """The edits of a function that stays."""
        assert self.old is not None
        out = self.header_patches(self.old)
        at: Path = (self.old.name,)
        braces = self.braces(at, "body")
        assert braces is not None
        self.block(at, self.old.body, (self.function.name,), self.function.body, braces, out)
        return out

    def header_patches(self, old: Function) -> list[Patch]:
        new, path = self.function, (old.name,)
        out: list[Patch] = []
        old_result = self.declared_result(path)
        result = result_text(self.kinds.results.get(new.name, UNKNOWN))
        if new.kind == "device" and old_result is not None:
            place, text = old_result
            if text in ("int", "float", "bool", "long long") and text != result != "void":
                out.append(self.patch(place, result))
        if signature(old) == signature(new):
            return out
        if old.kind != new.kind:
            raise LowerError(f"{new.name} cannot turn from @{old.kind} into @{new.kind}")
        if old.name != new.name:
            name = self.emitter.names.choose(new.name)
            out.append(self.patch(self.context.parts[path, "name"], name))
        if old.consts != new.consts:
            out += self.const_patches(old)
        if old.params != new.params:
            out += self.param_patches(old)
        if old.options != new.options:
            bounds = self.context.parts.get((path, "launch_bounds"))
            text = bounds_text(new, self.writer)
            if bounds is not None:
                out.append(self.patch(bounds, text.strip()))
            elif text:
                name_at = self.context.parts[path, "name"].start
                out.append(self.patch(Range(name_at, name_at), f"{text.strip()} "))
        return out

    def declared_result(self, path: Path) -> tuple[Range, str] | None:
        """The type that a device function returns, as the source spells it."""
        parts = self.context.parts
        start = parts[path, "header"].start
        if (path, "template") in parts:
            start = parts[path, "template"].end
        tokens = self.context.source.tokens.inside(start, parts[path, "name"].start)
        words = [t for t in tokens if t.text in ("int", "float", "bool", "long", "auto")]
        if not words:
            return None
        place = Range(words[0].start, words[-1].end)
        return place, " ".join(w.text for w in words)

    def const_patches(self, old: Function) -> list[Patch]:
        path: Path = (old.name,)
        known = {name: self.part_text(path, f"const{i}") for i, name in enumerate(old.consts)}
        items = [known.get(c) or const_text(c, self.kinds) for c in self.function.consts]
        template = self.context.parts.get((path, "template"))
        if template is None:
            start = self.context.parts[path, "header"].start
            line = f"template <{', '.join(items)}>\n{self.context.source.indent(start)}"
            return [self.patch(Range(start, start), line)]
        if not items:
            end = self.context.source.tokens.inside(template.end, len(self.context.source.data))
            return [self.patch(Range(template.start, end[0].start), "")]
        return [self.patch(self.context.parts[path, "consts"], ", ".join(items))]

    def param_patches(self, old: Function) -> list[Patch]:
        path: Path = (old.name,)
        known = {
            (param.name, param.type): self.context.text(place)
            for param, (_, place) in zip(old.params, self.old_params, strict=False)
        }
        items = [
            known.get((p.name, p.type))
            or param_text(self.function, self.emitter.names.of(p.name), p.type)
            for p in self.function.params
        ]
        place = self.context.parts[path, "params"]
        stream = next(
            (
                self.context.text(found)
                for (at, role), found in self.context.parts.items()
                if at == path
                and re.fullmatch(r"param\d+", role)
                and _STREAM.search(self.context.text(found))
            ),
            None,
        )
        if stream is not None:
            items.append(stream)
        return [self.patch(place, ", ".join(items))]

    # --- blocks ------------------------------------------------------------------------------

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
        pending: list[tuple[Path, Stmt]] = []
        for position, stmt in enumerate(new_body):
            path = (*new_at, position)
            old = self.stays(old_at, path)
            if old is None:
                pending.append((path, stmt))
                continue
            index = int(old[-1])
            self.insert(pending, old_at, old_body, index - 1, inside, out)
            pending = []
            self.kept(old, self.old_stmts[old], path, stmt, out)
        self.insert(pending, old_at, old_body, len(old_body) - 1, inside, out)
        for i in range(len(old_body)):
            old = (*old_at, i)
            if self.leaves(old):
                out.append(self.context.removal(old))

    def insert(
        self,
        pending: list[tuple[Path, Stmt]],
        old_at: Path,
        old_body: tuple[Stmt, ...],
        anchor: int,
        inside: Range,
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
        leaves = anchor >= 0 and self.leaves((*old_at, anchor))
        gone = self.context.lines_of((*old_at, anchor)) if leaves else Range(place, place)
        if leaves and gone.start < place <= gone.end:
            # The statement before goes and others share its lines: the new text takes its place.
            if source.alone_before(gone.start):
                lines = "".join(f"{text}\n{indent}" for text in texts)
            out.append(self.patch(Range(gone.start, gone.start), lines))
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
        for role, a, b in _roles(was, stmt):
            if not self.expressions.patch(old, role, a, b, out):
                return [self.patch(place, self.anew(old, path, stmt))]
        if not out:
            return [self.patch(place, self.anew(old, path, stmt))]
        return out

    def value_patches(self, old: Path, was: Assign, stmt: Assign, out: list[Patch]) -> bool:
        if was.value == stmt.value:
            return True
        operator = self.part_text(old, "operator")
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
                if self.part_text(old, "operator") != "=":
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
        done = all(
            self.expressions.patch(old, role, a, b, patches) for role, a, b in _roles(was, stmt)
        )
        if isinstance(was, For) and isinstance(stmt, For):
            done = done and was.var == stmt.var and _same_direction(was.step, stmt.step)
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
            out.append(self.patch(Range(then_end, then_end), text))
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


def _same_direction(a: Expr, b: Expr) -> bool:
    return downwards(a) == downwards(b)
