"""A second product in a score: a row of q, or a key, with a row of an input that positions choose.

Relative position embeddings (Shaw et al., arXiv 1803.02155; DeBERTa, arXiv 2006.03654) add to q.k
the product of q with an embedding of the distance from query to key, or of k with one. There are
few embeddings: the products with all of them are a table of each row, of which a pair reads one.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.cuir.nodes import Call, Expr, Index, Lambda, Name, walk_expr
from engine.scalar_algebra.rewrite import loads, map_children, rename
from engine.spec.expressions.build import is_reduction
from engine.spec.expressions.factors import mentions

PLACE = "place"
"""The embedding that a pair of query and key reads."""


@dataclass(frozen=True, slots=True)
class Relative:
    """The sum over `column`, `extent` of them, of `body`: a row of `role` ("q" or "k") times row
    `PLACE` of dimension `axis` of the input `table`. A pair reads it at `place`."""

    role: str
    column: str
    body: Expr
    extent: Expr
    table: str
    axis: int
    place: Expr


def relative_of(expr: Expr, q: str, k: str) -> Relative | None:
    """`expr` as such a product; None where it is none. `q` and `k` are what these are called."""
    match expr:
        case Call("sum_over", (Lambda((column,), body), extent)) if not mentions(extent, "j"):
            pass
        case _:
            return None
    if any(is_reduction(e) for e in walk_expr(body)):
        return None
    read = {load.base.id for load in loads(body) if isinstance(load.base, Name)}
    roles = [role for role, name in (("q", q), ("k", k)) if name in read]
    if len(roles) != 1:
        return None
    (role,) = roles
    own, other = (q, "j") if role == "q" else (k, "i")
    places = {
        (load.base.id, axis, part)
        for load in loads(body)
        if isinstance(load.base, Name)
        for axis, part in enumerate(load.index)
        if mentions(part, other)
    }
    if len(places) != 1:
        return None
    ((table, axis, place),) = places
    if table == own or mentions(place, column):
        return None
    body = _replaced(body, table, axis, place)
    return None if mentions(body, other) else Relative(
        role, column, body, extent, table, axis, place
    )  # fmt: skip


def _replaced(body: Expr, table: str, axis: int, place: Expr) -> Expr:
    """`body` with row `PLACE` of the table where it reads the row `place`."""
    body = map_children(body, lambda e: _replaced(e, table, axis, place))
    match body:
        case Index(Name(id), index) if id == table and index[axis] == place:
            return Index(body.base, (*index[:axis], Name(PLACE), *index[axis + 1 :]))
    return body


def tidied(expr: Expr) -> Expr:
    """`expr` with the variable of each sum called c."""
    expr = map_children(expr, tidied)
    match expr:
        case Lambda((column,), body):
            return Lambda(("c",), rename(body, {column: Name("c")}))
    return expr
