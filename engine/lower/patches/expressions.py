"""Changes inside an expression: the smallest part that has a place in the source is replaced."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from engine.cuir.nodes import (
    Assign,
    Attr,
    Call,
    Do,
    Expr,
    For,
    If,
    Index,
    Lambda,
    Name,
    Num,
    Path,
    Return,
    Select,
    Slice,
    Stmt,
    Tuple,
    children,
    rebuild,
    stmt_exprs,
    walk_expr,
)
from engine.errors import LowerError
from engine.lower.patches.context import Context
from engine.lower.patches.source_patch import Patch
from engine.lower.spelling.emit import Emitter, Names, child_strength, strength_of
from engine.lower.spelling.forms import in_template

_TEMPLATE, _ATOM, _TOP = 10, 14, 1  # strengths, as the emitter counts them
_C_KINDS = {"int": "i32", "float": "f32", "bool": "bool", "long long": "i64"}
_PARAM = re.compile(r"\s*(?:const\s+)?([A-Za-z_][\w ]*?)\s+(\w+)\s*$")


class ExpressionPatcher:
    """Patches the expressions of one function's statements."""

    def __init__(self, context: Context, emitter: Emitter) -> None:
        self.context = context
        self.emitter = emitter

    def patch(self, path: Path, role: str, old: Expr, new: Expr, out: list[Patch]) -> bool:
        """Adds the patches that make the source of `old` say `new`.

        `role` is the expression's in `Lifted.parts`. False when the source has no place for the
        change (the expression is implied, not written); then nothing is added.
        """
        made: list[Patch] = []
        reuse = self.reuse_below(path, role, old)
        if not self.descend(path, role, old, new, _TOP, replace(self.emitter, reuse=reuse), made):
            return False
        out += made
        return True

    def descend(
        self,
        path: Path,
        role: str,
        old: Expr,
        new: Expr,
        strength: int,
        emitter: Emitter,
        out: list[Patch],
    ) -> bool:
        if old == new:
            return True
        place = self.context.parts.get((path, role))
        if _same_shape(old, new):
            inner = self.inside(path, role, old, emitter)
            if inner is not None:
                made: list[Patch] = []
                strengths = _strengths(old, emitter)
                pairs = enumerate(zip(children(old), children(new), strict=True))
                # A node that the source does not spell is a conversion: it depends on the kinds.
                implied = place is None and not isinstance(old, Tuple | Slice)
                if all(
                    (not implied or inner.kinds.of(a) == inner.kinds.of(b))
                    and self.descend(path, f"{role}/{k}", a, b, strengths[k], inner, made)
                    for k, (a, b) in pairs
                ):
                    out += made
                    return True
        if place is None:
            return False
        try:
            text = emitter.text(new, strength)
        except LowerError:
            if isinstance(new, Lambda | Tuple | Slice):
                return False  # only the op around it knows how it is written
            raise
        out.append(self.context.patch(place, text))
        return True

    def inside(self, path: Path, role: str, expr: Expr, emitter: Emitter) -> Emitter | None:
        """The emitter for the children of `expr`: inside a lambda, its parameters have names."""
        if not isinstance(expr, Lambda):
            return emitter
        place = self.context.parts.get((path, f"{role}/params"))
        if place is None:
            return None
        written = [_PARAM.match(p) for p in self.context.text(place).split(",")]
        if len(written) != len(expr.params) or not all(written):
            return None if expr.params else emitter
        kinds, spelled = {}, dict(emitter.names.spelled)
        for param, found in zip(expr.params, written, strict=True):
            assert found is not None
            kinds[param] = _C_KINDS.get(found.group(1), "f32")
            spelled[param] = found.group(2)
        names = Names(emitter.names.reserved, spelled)
        return replace(emitter, kinds=emitter.kinds.inside(kinds), names=names)

    # --- text of the source that stays valid -------------------------------------------------

    def reuse_of(self, path: Path, stmt: Stmt) -> Callable[[Expr], tuple[str, int] | None]:
        """Source text for the subexpressions of a whole statement."""
        table: dict[Expr, tuple[str, int]] = {}
        for role, expr in _expressions(stmt):
            self.collect(path, role, expr, table)
        return table.get

    def reuse_below(
        self, path: Path, role: str, expr: Expr
    ) -> Callable[[Expr], tuple[str, int] | None]:
        table: dict[Expr, tuple[str, int]] = {}
        self.collect(path, role, expr, table)
        return table.get

    def collect(
        self, path: Path, role: str, expr: Expr, table: dict[Expr, tuple[str, int]]
    ) -> None:
        place = self.context.parts.get((path, role))
        if place is not None and not isinstance(expr, Name | Num | Attr | Lambda | Tuple | Slice):
            text = self.context.text(place)
            if "\n" not in text and self.says_all(expr, text):
                table.setdefault(expr, _with_strength(expr, text))
        for k, child in enumerate(children(expr)):
            self.collect(path, f"{role}/{k}", child, table)

    def says_all(self, expr: Expr, text: str) -> bool:
        """Whether every variable of `expr` stands in the text by name, and no lambda hides one."""
        words = set(re.findall(r"\w+", text))
        for node in walk_expr(expr):
            if isinstance(node, Lambda):
                return False
            local = isinstance(node, Name) and node.id in self.emitter.kinds.locals
            if local and self.emitter.names.of(node.id) not in words:  # type: ignore[union-attr]
                return False
        return True


def _with_strength(expr: Expr, text: str) -> tuple[str, int]:
    """Source text that stands for `expr`, its own outer parentheses taken off."""
    if text.startswith("(") and _closes_at(text) == len(text) - 1:
        text = text[1:-1].strip()
        if text.startswith("("):
            return text, _ATOM if _closes_at(text) == len(text) - 1 else strength_of(expr)
    return text, strength_of(expr)


def _closes_at(text: str) -> int:
    depth = 0
    for at, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if not depth:
            return at
    return -1


def _same_shape(old: Expr, new: Expr) -> bool:
    """Whether the two differ in their children only."""

    def blank(child: Expr) -> Expr:
        return Slice(Num(0)) if isinstance(child, Slice) else Num(0)

    return rebuild(old, blank) == rebuild(new, blank)


def _strengths(expr: Expr, emitter: Emitter) -> list[int]:
    """What each child needs in its place."""
    count = len(children(expr))
    if isinstance(expr, Tuple):
        # Items may be written between `<` and `>`: the strength of those does no harm elsewhere.
        return [_TEMPLATE if not isinstance(i, Select) else _TOP for i in expr.items]
    out = [child_strength(expr, k) for k in range(count)]
    if isinstance(expr, Call | Index):
        templated = in_template(expr, emitter.kinds)
        out = [
            _TEMPLATE if any(child is t for t in templated) else strength
            for child, strength in zip(children(expr), out, strict=True)
        ]
    return out


def _expressions(stmt: Stmt) -> list[tuple[str, Expr]]:
    """A statement's own expressions by their roles in `Lifted.parts`."""
    return list(zip(_ROLES.get(type(stmt), ()), stmt_exprs(stmt), strict=False))


_ROLES: Mapping[type[Stmt], tuple[str, ...]] = {
    Assign: ("value",),
    Return: ("value",),
    Do: ("call",),
    If: ("condition",),
    For: ("start", "stop", "step"),
}
