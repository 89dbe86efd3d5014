"""The edits of one function: in place where it stays, as text where it is new."""

from __future__ import annotations

import re
from dataclasses import replace

from engine.cuir.matching import signature
from engine.cuir.nodes import (
    Assign,
    For,
    Function,
    Opaque,
    Path,
    Stmt,
    walk_block,
)
from engine.errors import LowerError
from engine.lift.cpp.provenance import Range
from engine.lower.patches.blocks import BlockLowerer
from engine.lower.patches.context import Context
from engine.lower.patches.source_patch import Patch
from engine.lower.patches.statements import (
    bounds_text,
    const_text,
    header_text,
    param_text,
    result_text,
)  # fmt: skip
from engine.lower.spelling.cpp_kinds import ARGS, UNKNOWN, Kinds
from engine.lower.spelling.emit import Emitter, Names
from engine.lower.spelling.forms import forms

_STREAM = re.compile(r"cudaStream_t\s+(\w+)")
_WORD = re.compile(r"[A-Za-z_]\w*")


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
        self.blocks = BlockLowerer(context, self.emitter, forms(function, kinds), self.old_stmts)
        self.writer = self.blocks.writer

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
            found = _STREAM.search(self.context.part_text((self.old.name,), "params"))
            if found:
                return found.group(1)
        return "stream"

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
                text = self.context.part_text(path, role)
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
        body = self.blocks.block_text(path, self.function.body, self.context.source.unit)
        return f"{head} {{{body}\n}}"

    def patches(self) -> list[Patch]:
        """The edits of a function that stays."""
        assert self.old is not None
        if ((self.old.name,), "header") not in self.context.parts:
            return self.top_level(self.old)
        out = self.header_patches(self.old)
        at: Path = (self.old.name,)
        braces = self.blocks.braces(at, "body")
        assert braces is not None
        new_at: Path = (self.function.name,)
        self.blocks.block(at, self.old.body, new_at, self.function.body, braces, out)
        return out

    def top_level(self, old: Function) -> list[Patch]:
        """An item without meaning (a macro, a global): the tokens of its text that differ."""
        match self.function.body:
            case (Opaque(text),) if replace(self.function, body=old.body) == old:
                return self.context.token_patches(self.context.statement((old.name,)), text)
        raise LowerError(
            f"{old.name} is no function of the kernel language, so only its text can be edited",
            fix="change the text of its opaque op",
        )

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
            out.append(self.patch(self.context.parts[path, "name"], new.name))  # as calls spell it
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
        text = self.context.part_text
        known = {name: text(path, f"const{i}") for i, name in enumerate(old.consts)}
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
        if [p.name for p in old.params] == [p.name for p in self.function.params]:
            return [
                self.patch(place, param_text(self.function, name, param.type))
                for was, param, (name, place) in zip(
                    old.params, self.function.params, self.old_params, strict=False
                )
                if was != param
            ]
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

    def patch(self, place: Range, text: str) -> Patch:
        return Patch(place.start, place.end, self.context.bytes(text))
