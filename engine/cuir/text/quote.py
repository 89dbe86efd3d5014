"""CuIR written as its own text, with holes: to make trees, and to say what a tree must look like.

    stmt("last = min(first + rows, args.Nq) - 1", last=last, first=q0, rows=rows)

A name in a quote is a word of CuIR (an op, a function, a type, `args`), a parameter of a lambda in
the quote, or a hole: nothing else, so that no quote can capture a variable of the program that it
is put into. Each hole needs a keyword and each keyword a hole. `*name` is a hole for many: for
statements on a line of its own, else for arguments, indices or items.

In a pattern the same names are what is found: one that occurs twice must stand for the same twice,
and `_` for anything. Keywords and constants in brackets that a pattern does not mention may be
there. A text is parsed once.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from textwrap import dedent

from engine.cuir.functions import CASTS, CONSTANTS, FUNCTIONS
from engine.cuir.nodes import (
    THEN,
    Assign,
    Call,
    Do,
    Expr,
    For,
    Index,
    Lambda,
    Name,
    Num,
    Return,
    Stmt,
    Tuple,
    Unary,
    blocks,
    map_stmt_exprs,
    map_target,
    rebuild,
    with_blocks,
)
from engine.cuir.ops import OPS
from engine.cuir.parser import Parser
from engine.cuir.printer import negated
from engine.cuir.types import DTYPES
from engine.errors import CuirError

Block = tuple[Stmt, ...]
# What a hole takes: an expression, a name, a number; where it is one for many, these or statements.
Filling = Expr | str | int | float | Stmt | tuple[Expr, ...] | tuple[Stmt, ...]

WORDS = frozenset({*OPS, *FUNCTIONS, *CASTS, *CONSTANTS, *DTYPES, THEN, "args", "success", "T"})
_ANY = "_"


def expr(text: str, /, **holes: Filling) -> Expr:
    """The expression in `text`. Raises `CuirError` for a hole that is missing or unused."""
    (made,) = _filled(f"return {text}", text, holes)
    assert isinstance(made, Return) and made.value is not None
    return made.value


def call(text: str, /, **holes: Filling) -> Call:
    """As `expr`, of a call."""
    made = expr(text, **holes)
    if not isinstance(made, Call):
        raise CuirError(f"no call: {text}")
    return made


def stmt(text: str, /, **holes: Filling) -> Stmt:
    """The one statement in `text`."""
    made = block(text, **holes)
    if len(made) != 1:
        raise CuirError(f"{len(made)} statements and not one: {text}")
    return made[0]


def assign(text: str, /, **holes: Filling) -> Assign:
    """As `stmt`, of an assignment."""
    made = stmt(text, **holes)
    if not isinstance(made, Assign):
        raise CuirError(f"no assignment: {text}")
    return made


def block(text: str, /, **holes: Filling) -> Block:
    """The statements in `text`, whose indentation does not count."""
    return _filled(text, text, holes)


def matched(text: str, found: Expr | Stmt) -> Mapping[str, Expr] | None:
    """What the names in a pattern stand for where `found` looks like it, `*name` as the items of a
    `Tuple`; None where it looks otherwise. Of statements in a pattern only `*_` may be many."""
    pattern = _pattern(text, isinstance(found, Expr))
    out: dict[str, Expr] = {}
    return out if _matches(pattern, found, out) else None


def rewrites(pattern: str, made: str) -> Callable[[Expr], Expr | None]:
    """A change for `map_expr`: what looks like `pattern` becomes `made`."""

    def change(node: Expr) -> Expr | None:
        holes = matched(pattern, node)
        return None if holes is None else expr(made, **holes)

    return change


# --- a text and its holes -----------------------------------------------------------------------


class _Parser(Parser):
    """CuIR, and `*name`: as a name or an op with a star before it, which no program has."""

    def expr(self, node: ast.expr) -> Expr:
        match node:
            case ast.Starred(ast.Name(id)):
                return Name(f"*{id}")
            case ast.Lambda(ast.arguments([], before, ast.arg(many), after), body):
                names = (*(a.arg for a in before), f"*{many}", *(a.arg for a in after))
                return Lambda(names, self.expr(body))
        return super().expr(node)

    def stmt(self, node: ast.stmt, path: tuple[str | int, ...]) -> Stmt:
        match node:
            case ast.Expr(ast.Starred(ast.Name(id))):
                return Do(Call(f"*{id}"))
        return super().stmt(node, path)


@dataclass(frozen=True, slots=True)
class _Quoted:
    body: Block
    holes: frozenset[str]


@lru_cache(None)
def _quoted(text: str) -> _Quoted:
    parser = _Parser(dedent(text).strip(), "<quote>")
    body = parser.block(parser.tree.body, ("",))
    return _Quoted(body, frozenset(n.removeprefix("*") for s in body for n in _free(s)))


@lru_cache(None)
def _pattern(text: str, is_expr: bool) -> Expr | Stmt:
    (made,) = _quoted(f"return {text}" if is_expr else text).body
    if is_expr and isinstance(made, Return):
        assert made.value is not None
        return made.value
    return made


def _free(node: object) -> Iterator[str]:
    """Names that are neither words nor a lambda's own."""
    match node:
        case tuple():
            for item in node:
                yield from _free(item)
        case Name(id):
            yield from {id} - WORDS
        case Lambda(params, body):
            yield from (p for p in params if p.startswith("*"))
            yield from (n for n in _free(body) if n not in params)
        case Call(fn):
            yield from {fn} - WORDS
        case Assign(name) | For(name):
            yield name
    if is_dataclass(node) and not isinstance(node, Lambda | Name):
        for item in fields(node):
            yield from _free(getattr(node, item.name))


# --- filling ------------------------------------------------------------------------------------


def _filled(text: str, shown: str, holes: Mapping[str, Filling]) -> Block:
    quoted = _quoted(text)
    missing, unused = quoted.holes - holes.keys(), holes.keys() - quoted.holes
    if missing or unused:
        why = [f"no value for {', '.join(sorted(missing))}"] if missing else []
        why += [f"no hole called {', '.join(sorted(unused))}"] if unused else []
        raise CuirError(f"{' and '.join(why)} in the quote `{dedent(shown).strip()}`")
    return _Filled(holes).block(quoted.body)


@dataclass(frozen=True, slots=True)
class _Filled:
    holes: Mapping[str, Filling]

    def block(self, body: Block) -> Block:
        out: list[Stmt] = []
        for one in body:
            if isinstance(one, Do) and one.call.fn.startswith("*"):
                out += _statements(self.holes[one.call.fn[1:]])
                continue
            inner = {branch: self.block(stmts) for branch, stmts in blocks(one)}
            filled = map_stmt_exprs(with_blocks(one, inner), self.expr)
            out.append(map_target(filled, self.name))
        return tuple(out)

    def expr(self, node: Expr) -> Expr:
        match node:
            case Name(id) if id in self.holes:
                return _expr(id, self.holes[id])
            case Call(fn, args, kwargs, params):
                named = tuple((name, self.expr(value)) for name, value in kwargs)
                return Call(self.name(fn), self.many(args), named, self.many(params))
            case Index(base, index):
                return Index(self.expr(base), self.many(index))
            case Tuple(items):
                return Tuple(self.many(items))
            case Lambda(params, body):
                own = _Filled({k: v for k, v in self.holes.items() if k not in params})
                names = self.many(tuple(Name(p) for p in params if p.startswith("*")))
                at = next((n for n, p in enumerate(params) if p.startswith("*")), len(params))
                many = tuple(n.id for n in names if isinstance(n, Name))
                return Lambda((*params[:at], *many, *params[at + 1 :]), own.expr(body))
            case Unary("-", inner):
                filled = self.expr(inner)
                return negated(filled) or Unary("-", filled)
        return rebuild(node, self.expr)

    def many(self, items: tuple[Expr, ...]) -> tuple[Expr, ...]:
        out: list[Expr] = []
        for item in items:
            if isinstance(item, Name) and item.id.startswith("*"):
                given = self.holes[item.id[1:]]
                given = given.items if isinstance(given, Tuple) else given
                if not isinstance(given, tuple):
                    raise CuirError(f"the hole {item.id} takes many expressions")
                out += (_expr(item.id, one) for one in given)
            else:
                out.append(self.expr(item))
        return tuple(out)

    def name(self, name: str) -> str:
        if name not in self.holes:
            return name
        match self.holes[name]:
            case str(id) | Name(id):
                return id
        raise CuirError(f"the hole {name} stands where a name must")


def _expr(hole: str, given: Filling) -> Expr:
    if isinstance(given, str):
        return Name(given)
    if isinstance(given, int | float):
        return Num(given)
    if isinstance(given, Expr):
        return given
    raise CuirError(f"the hole {hole} takes one expression")


def _statements(given: Filling) -> Block:
    many = given if isinstance(given, tuple) else (given,)
    out = tuple(one for one in many if isinstance(one, Stmt))
    if len(out) != len(many):
        raise CuirError("a line `*name` takes statements")
    return out


# --- patterns -----------------------------------------------------------------------------------


def _matches(pattern: object, found: object, out: dict[str, Expr]) -> bool:
    match pattern, found:
        case Name(id), _ if id not in WORDS:
            return isinstance(found, Expr) and _is(id, found, out)
        case Call(fn, args, kwargs, params), Call():
            theirs = dict(found.kwargs)
            return (
                _named(fn, found.fn, out)
                and _many(args, found.args, out)
                and all(k in theirs and _matches(v, theirs[k], out) for k, v in kwargs)
                and (not params or _many(params, found.params, out))
            )
        case Assign(target, value), Assign():
            return _named(target, found.target, out) and _matches(value, found.value, out)
        case Lambda((many,), body), Lambda() if many.startswith("*"):
            names = Tuple(tuple(map(Name, found.params)))
            return _is(many[1:], names, out) and _matches(body, found.body, out)
        case Lambda(params, body), Lambda():
            inside = out | {p: Name(p) for p in params}
            same = params == found.params and _matches(body, found.body, inside)
            out |= {k: v for k, v in inside.items() if k not in params}
            return same
        case tuple(), tuple():
            return _many(pattern, found, out)
    if type(pattern) is not type(found) or isinstance(pattern, Num):
        return pattern == found
    if not is_dataclass(pattern):
        return pattern == found
    parts = (f.name for f in fields(pattern))
    return all(_matches(getattr(pattern, part), getattr(found, part), out) for part in parts)


def _is(name: str, found: Expr, out: dict[str, Expr]) -> bool:
    return name == _ANY or out.setdefault(name, found) == found


def _named(pattern: str, found: str, out: dict[str, Expr]) -> bool:
    return pattern == found if pattern in WORDS else _is(pattern, Name(found), out)


def _many(pattern: tuple[object, ...], found: tuple[object, ...], out: dict[str, Expr]) -> bool:
    """Of a list with one `*name` the items before and behind it are those at the ends."""
    at = next((n for n, p in enumerate(pattern) if _star(p) is not None), None)
    if at is None:
        both = zip(pattern, found, strict=False)
        return len(pattern) == len(found) and all(_matches(p, f, out) for p, f in both)
    rest = len(pattern) - at - 1
    stop = len(found) - rest
    between = tuple(f for f in found[at:stop] if isinstance(f, Expr))
    name = _star(pattern[at])
    return (
        stop >= at
        and _many(pattern[:at], found[:at], out)
        and _many(pattern[at + 1 :], found[stop:], out)
        and (name == _ANY or (name is not None and _is(name, Tuple(between), out)))
    )


def _star(item: object) -> str | None:
    match item:
        case Name(id) | Do(Call(id)) if id.startswith("*"):
            return id[1:]
    return None
