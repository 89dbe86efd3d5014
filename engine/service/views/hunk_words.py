"""What a hunk is beside its title, for who decides on it: what it does, the clauses that it serves
in words, its numbers by name, the names that it needs of other hunks and those that others use."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from engine.cuir.changes.diff import diff
from engine.cuir.changes.edits import Edit, EditHunk, EditKind, Node, hunks
from engine.cuir.nodes import (
    Assign,
    Attr,
    Call,
    Expr,
    Field,
    For,
    Function,
    Module,
    Name,
    Num,
    Path,
    stmt_exprs,
    walk,
    walk_block,
    walk_expr,
)
from engine.cuir.static.calls import launched
from engine.service.views.hunk_doings import Doings
from engine.spec.recipes.recipe import Recipe
from engine.types import Origin, Proposal

_FACTORS = (1, 2, 4, 8, 0.5, 0.25)
_CONSTANTS = (("", 1.0), ("log2(e)", math.log2(math.e)), ("ln(2)", math.log(2)))


@dataclass(frozen=True, slots=True)
class Explained:
    """`needs` and `users` are pairs of another hunk of the proposal and a name: one that it gives
    and this hunk reads, one that this hunk gives and it reads. `does` says what its edits do, then
    what each op is that the base has not."""

    clauses: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    needs: tuple[tuple[str, str], ...] = ()
    users: tuple[tuple[str, str], ...] = ()
    does: tuple[str, ...] = ()


def explain(
    base: Module, proposed: Module, proposal: Proposal, recipe: Recipe | None
) -> dict[str, Explained]:
    """Every hunk of a proposal explained, by hunk id."""
    found = hunks(diff(base, proposed), len(proposal.hunks))
    known = _known(base)
    gives = [[g for e in h.edits for g in _gives(e, known)] for h in found]
    reads = [[r for e in h.edits for r in _reads(e)] for h in found]
    links = [
        (user, giver, name)
        for user, giver in product(range(len(found)), repeat=2)
        if user != giver
        for name, block in gives[giver]
        if any(name in names and path[: len(block)] == block for names, path in reads[user])
    ]
    links += _together(found, _retyped(base, proposed))
    ids = [h.id for h in proposal.hunks]
    constants = _constants(recipe)
    doings = Doings(base, proposed)
    out = {}
    for n, (hunk, shown) in enumerate(zip(found, proposal.hunks, strict=True)):
        out[shown.id] = Explained(
            clause_words(recipe, shown.clauses),
            tuple(dict.fromkeys(_numbers(hunk, constants))),
            tuple(dict.fromkeys((ids[g], name) for u, g, name in links if u == n)),
            tuple(dict.fromkeys((ids[u], name) for u, g, name in links if g == n)),
            doings.of(hunk, shown.origin is Origin.RULES),
        )
    return out


def clause_words(recipe: Recipe | None, kinds: Sequence[str]) -> tuple[str, ...]:
    """The recipe's clauses of these kinds, as `kind: words`."""
    clauses = recipe.clauses if recipe is not None else ()
    told = (f"{c.kind.replace('_', ' ')}: {c.words}" for k in kinds for c in clauses if c.kind == k)
    return tuple(told)


def closure(explained: Mapping[str, Explained], *hunks: str) -> tuple[str, ...]:
    """These hunks and those that cannot stand without them, in the proposal's order."""
    out = set(hunks)
    waiting = list(hunks)
    while waiting:
        for user, _ in explained[waiting.pop()].users:
            if user not in out:
                out.add(user)
                waiting.append(user)
    return tuple(h for h in explained if h in out)


# --- names ----------------------------------------------------------------------------------------


def _known(base: Module) -> frozenset[tuple[str, str]]:
    """The (function, name) pairs that the base already has."""
    names = {(str(p[0]), s.target) for p, s in walk(base) if isinstance(s, Assign)}
    names |= {(f.name, p.name) for f in base.functions for p in f.params}
    return frozenset(names)


def _gives(edit: Edit, known: frozenset[tuple[str, str]]) -> Iterator[tuple[str, Path]]:
    """New names of an edit, each with the block in which it can be read."""
    node, path = edit.new, edit.new_path
    if path is None or edit.kind is EditKind.MOVE:
        return
    match node:
        case Field(name):
            yield f"args.{name}", ()
        case Function(_, name, params):
            yield name, ()
            was = edit.old.params if isinstance(edit.old, Function) else params
            yield from ((p.name, (name,)) for p in params if p not in was)
        case None | tuple():
            return
        case _:
            for inner, stmt in walk_block((node,), path[:-1]):
                if not isinstance(stmt, Assign) or (str(path[0]), stmt.target) in known:
                    continue
                if stmt.target not in _names(stmt.value):  # else another gives it, this goes on
                    yield stmt.target, inner[:-1]


def _reads(edit: Edit) -> Iterator[tuple[frozenset[str], Path]]:
    if edit.new_path is not None and edit.kind is not EditKind.MOVE:
        names = frozenset(n for e in _exprs(edit.new) for n in _names(e))
        yield names, edit.new_path
        if isinstance(edit.new, For):  # how it goes on, which its block may set
            yield frozenset(_names(edit.new.step)), (*edit.new_path, "body")


def _retyped(base: Module, proposed: Module) -> Mapping[tuple[str, str], str]:
    """The parameters of kernels that are of another type now, by (function, name), and by those
    whose values a launch hands on as such a parameter."""
    was = {f.name: f.params for f in base.functions}
    found = {
        (f.name, new.name): new.name
        for f in proposed.functions
        for old, new in zip(was.get(f.name, ()), f.params, strict=False)
        if old.name == new.name and old.type != new.type
    }
    for path, stmt in walk(proposed) if found else ():
        for run in filter(None, (launched(e) for x in stmt_exprs(stmt) for e in walk_expr(x))):
            params = next((f.params for f in proposed.functions if f.name == run.name), ())
            for param, given in zip(params, run.args, strict=False):
                if isinstance(given, Name) and (run.name, param.name) in found:
                    found[str(path[0]), given.id] = param.name
    return found


def _together(
    found: Sequence[EditHunk], retyped: Mapping[tuple[str, str], str]
) -> Iterator[tuple[int, int, str]]:
    """Both ways between all hunks that touch a value of another type: what makes it, what hands it
    on and what reads it."""
    touched = [
        {retyped[name] for e in h.edits for name in _touched(e) if name in retyped} for h in found
    ]
    for one, other in product(range(len(found)), repeat=2):
        if one != other:
            yield from ((one, other, name) for name in touched[one] & touched[other])


def _touched(edit: Edit) -> Iterator[tuple[str, str]]:
    """The (function, name) pairs that an edit declares, sets or reads."""
    for node in (edit.old, edit.new):
        function = str(edit.path[0])
        match node:
            case Function(name=function, params=params):
                yield from ((function, p.name) for p in params)
            case Assign(target):
                yield function, target
        yield from ((function, name) for e in _exprs(node) for name in _names(e))


def _exprs(node: Node | None) -> Iterator[Expr]:
    match node:
        case None | Field():
            return
        case Function():
            yield from (e for _, e in node.options)
            for _, stmt in walk_block(node.body, ()):
                yield from stmt_exprs(stmt)
        case tuple():
            yield from (e for _, e in node)
        case _:
            for _, stmt in walk_block((node,), ()):
                yield from stmt_exprs(stmt)


def _names(expr: Expr) -> Iterator[str]:
    for part in walk_expr(expr):
        match part:
            case Name(name):
                yield name
            case Attr(Name("args"), field):
                yield f"args.{field}"
            case Call(fn):
                yield fn


# --- numbers --------------------------------------------------------------------------------------


def _constants(recipe: Recipe | None) -> tuple[float, ...]:
    """The numbers of the spec's own formulas."""
    if recipe is None:
        return ()
    found = (p.value for f in recipe.expressions() for p in walk_expr(f) if isinstance(p, Num))
    plain = (float(v) for v in found if not isinstance(v, bool) and abs(v) not in (0, 1))
    return tuple(dict.fromkeys(plain))


def _numbers(hunk: EditHunk, constants: Sequence[float]) -> Iterator[str]:
    for edit in hunk.edits:
        if edit.kind is EditKind.MOVE:
            continue
        before = {p for e in _exprs(edit.old) for p in walk_expr(e)}
        for expr in _exprs(edit.new):
            for part in walk_expr(expr):
                if isinstance(part, Num) and isinstance(part.value, float) and part not in before:
                    name = named(part.value, constants)
                    if name:
                        yield f"{part.value:.3g} = {name}"


def named(value: float, constants: Sequence[float]) -> str:
    """A number as a short product of the spec's constants and of log2(e) or ln(2), to twelve
    digits; empty where it is none, or is such a constant itself."""
    if value in constants or not math.isfinite(value) or value == 0.0:
        return ""
    found = []
    for (word, base), times, over in product(_CONSTANTS, (1.0, *constants), (1.0, *constants)):
        for factor in _FACTORS:
            made = factor * base * times / over
            if math.isclose(abs(value), abs(made), rel_tol=1e-12):
                parts = [word, "" if times == 1.0 else f"{times:g}"]
                if factor != 1 or not any(parts):
                    parts.insert(0, f"{factor:g}")
                told = " x ".join(p for p in parts if p).replace(" x log", " log")
                told += "" if over == 1.0 else f" / {over:g}"
                found.append((len(told), ("-" if value * made < 0 else "") + told))
    best = min(found, default=(0, ""))[1]
    return "" if best.lstrip("-").replace(".", "").isdigit() else best
