"""What the elements of a row share, computed once a row.

A temperature by position is one number for all keys of a row. Written as the spec has it, its
logarithm is taken for each pair; as a row vector made before the loop over keys it is taken once a
row, and a thread holds as many numbers as it has rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial, reduce

from engine.cuir.nodes import (
    Assign,
    Binary,
    Call,
    Expr,
    Index,
    Lambda,
    Module,
    Name,
    Num,
    Stmt,
    free_names,
    rebuild,
    walk_expr,
)
from engine.cuir.rewrite import map_statements
from engine.cuir.static.facts import statements
from engine.transfer.match import Attention, Site
from engine.transfer.rules.base.hoist import Labels, hoist
from engine.transfer.rules.base.input_views import scalar_inputs
from engine.transfer.rules.base.rule import Case, Rule
from engine.transfer.rules.base.score_sites import X, is_element_op, map_rows
from engine.transfer.rules.elements.stage import KEY, ROW

CHEAP = ("min", "max", "abs", "f32", "i32")  # calls of an instruction or two


def gathered(body: Expr, of_row: Callable[[Expr], bool]) -> Expr:
    """`body` with what multiplies x in one factor: `x * a + x * b` is `x * (a + b)`."""
    if not any(isinstance(e, Call) for e in walk_expr(body)):
        return body
    factors: list[Expr] = []
    rest: list[tuple[str, Expr]] = []
    for sign, term in _terms(body, "+"):
        parts = _factors(term)
        others = [p for p in parts if p != X]
        if len(others) == len(parts) - 1 and all(of_row(p) or _fixed(p) for p in others):
            factor = _times(others)
            factors.append(factor if sign == "+" else Binary("*", Num(-1.0), factor))
        else:
            rest.append((sign, term))
    whole = reduce(partial(Binary, "+"), factors) if factors else Num(1.0)
    if not any(of_row(e) and costly(e) for e in walk_expr(whole)):
        return body
    out: Expr = Binary("*", X, whole)
    for sign, term in rest:
        out = Binary(sign, out, term)
    return out


def costly(expr: Expr) -> bool:
    """True for what takes more instructions than reading a register."""
    return any(
        (isinstance(e, Call) and e.fn not in CHEAP)
        or (isinstance(e, Binary) and e.op in ("/", "//", "%"))
        for e in walk_expr(expr)
    )


def _fixed(expr: Expr) -> bool:
    """True where no part is an element's, a row's or a key's own."""
    memory = any(isinstance(e, Index) for e in walk_expr(expr))
    return not memory and not free_names(expr) & {"x", "s", ROW, KEY}


def _terms(expr: Expr, sign: str) -> list[tuple[str, Expr]]:
    match expr:
        case Binary("+", left, right):
            return [*_terms(left, sign), *_terms(right, sign)]
        case Binary("-", left, right):
            return [*_terms(left, sign), *_terms(right, "-" if sign == "+" else "+")]
    return [(sign, expr)]


def _factors(expr: Expr) -> list[Expr]:
    match expr:
        case Binary("*", left, right):
            return [*_factors(left), *_factors(right)]
    return [expr]


def _times(parts: list[Expr]) -> Expr:
    return reduce(partial(Binary, "*"), parts) if parts else Num(1.0)


def keep_rows(module: Module, found: Attention) -> Module:
    """The costly parts of score maps that read a row's values alone, as row vectors that are made
    before the loop over keys."""
    kernel = module.function(found.kernel)
    vectors = {
        s.target for s in statements(kernel)
        if isinstance(s, Assign) and isinstance(s.value, Call) and s.value.fn == "load_rows"
    }  # fmt: skip
    labels = Labels(kernel)
    made: dict[str, Assign] = {}

    def edit(stmt: Stmt) -> Stmt:
        if not is_element_op(stmt, found, "map"):
            return stmt
        assert isinstance(stmt, Assign) and isinstance(stmt.value, Call)
        site = next(s for s in found.sites if s.score == stmt.target)
        value, new = _with_rows(stmt.value, site, vectors, labels)
        made.update({one.target: one for one in new})
        return replace(stmt, value=value)

    edited = map_statements(module, kernel.name, edit)
    for statement in made.values():
        edited = hoist(edited, kernel.name, statement)
    return edited


def _with_rows(
    call: Call, site: Site, vectors: set[str], labels: Labels
) -> tuple[Call, list[Assign]]:
    """A map of a score tile with row vectors for its rows' parts, and the statements of these."""
    *tiles, f = call.args
    if not isinstance(f, Lambda) or f.params[:1] != (X.id,):
        return call, []
    operands = dict(zip(f.params[1:], tiles[1:], strict=False))
    rows = {p for p, t in operands.items() if isinstance(t, Name) and t.id in vectors} | {ROW}
    others = {*f.params, "s", KEY} - rows
    new: dict[str, Assign] = {}

    def of_row(expr: Expr) -> bool:
        names = free_names(expr)
        memory = any(isinstance(e, Index) for e in walk_expr(expr))
        return bool(names & rows) and not names & others and not memory

    def taken(expr: Expr) -> Expr:
        if not (of_row(expr) and costly(expr)):
            return rebuild(expr, taken)
        reads = [p for p in operands if p in free_names(expr)]
        # Without a vector to read, the row maximum, which is there before the loop, gives the rows.
        given = [operands[p] for p in reads] or [Name(site.row_max_name)]
        value = map_rows("made", tuple(given), tuple(map(Name, reads or ["top"])), expr, site.rows)
        assert isinstance(value, Assign)
        name = labels.of(value.value, "score_rows")
        new[name] = replace(value, target=name)
        return Name(name)

    body = taken(gathered(f.body, of_row))
    if not new:
        return call, []
    kept = [p for p in operands if p in free_names(body)]
    placed = bool(free_names(body) & {ROW, KEY})
    places = (ROW, KEY) if placed else ()
    at = call.kwargs if placed else tuple(k for k in call.kwargs if k[0] != "at")
    given = (tiles[0], *(operands[p] for p in kept), *map(Name, new))
    params = (X.id, *kept, *new, *places)
    return replace(call, args=(*given, Lambda(params, body)), kwargs=at), list(new.values())


def asked(case: Case) -> bool:
    """Whether a part of the score that is not cheap is the same for all keys of a row. Without a
    softmax there is no row maximum that gives the rows, and each element computes its own."""
    if case.rest is None or not case.softmax:
        return False
    score = case.words.of_kernel(scalar_inputs(case.rest, case.recipe))

    def of_row(expr: Expr) -> bool:
        loads = [e for e in walk_expr(expr) if isinstance(e, Index)]
        staged = all(
            e.index[-1] == Name(ROW) and not any(free_names(k) & {ROW} for k in e.index[:-1])
            for e in loads
        )
        names = free_names(expr)
        return ROW in names and not names & {"x", "s", KEY} and staged

    return any(of_row(e) and costly(e) for e in walk_expr(gathered(score, of_row)))


RULE = Rule(
    "rows",
    "Compute what a row's elements share once a row",
    "a part of the score is the same for all keys of a row: a row vector made before the loop "
    "over keys, not the same work for each pair",
    "score",
    applies=asked,
    edit=lambda module, case: keep_rows(module, case.found),
    after=("shared",),
)
