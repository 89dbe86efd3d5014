"""What happens to q and k before they are multiplied.

A product of q and k in a score is a sum over the head dimension. Each of its two sides is an
expression of one row of q or of k: of the row's own elements at any column, of sums and maxima over
its columns (norms), and of other inputs at this row (rotary cosines) or column (learned weights).
What depends on the row alone and needs no such sum is a factor of the score instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from engine.cuir.nodes import (
    Binary,
    Call,
    Expr,
    Index,
    Lambda,
    Name,
    Num,
    Select,
    walk_expr,
)
from engine.scalar_algebra.rewrite import load_names, map_children, rename, substitute
from engine.spec.attention.weights import LLM, NotAttention
from engine.spec.expressions.build import is_reduction
from engine.spec.expressions.factors import Factor, factors, has_reduction, mentions, product
from engine.spec.recipes.recipe import sums_over_heads

COLUMN = "dd"
HEAD = Name("h")


class Unprepared(NotAttention):
    """What happens to q or k before their product is known, and no rule carries it."""


@dataclass(frozen=True, slots=True)
class Product:
    """The sum over `var`, of `extent` columns, of `q` times `k`, multiplied by `scalars`."""

    scalars: tuple[Factor, ...]
    q: Expr
    k: Expr
    var: str
    extent: Expr


def product_of(expr: Expr, j: str, floats: frozenset[str]) -> Product | None:
    """`expr` as a product of a row of queries and key `j`; None where it is none."""
    match expr:
        case Call("sum_over", (Lambda((var,), body), extent)):
            pass
        case _:
            return None
    reads = [e for e in float_loads(body, floats) if mentions(e, var)]
    if {mentions(e, j) for e in reads} != {False, True}:
        return None
    if not any(Name(j) in e.index for e in reads):
        return None  # an embedding of the key's position (`engine.spec.attention.relative`)
    sides = list(_sides(body, j, floats))
    scalars = tuple(f for f, _ in sides if _is_scalar(f, var))
    q, k = (
        product(f for f, of_k in sides if of_k == wanted and not _is_scalar(f, var))
        for wanted in (False, True)
    )
    return Product(scalars, q, k, var, extent)


def float_loads(expr: Expr, floats: frozenset[str]) -> Iterator[Index]:
    """The loads of the inputs `floats` in `expr`."""
    for e in walk_expr(expr):
        if isinstance(e, Index) and isinstance(e.base, Name) and e.base.id in floats:
            yield e


def _is_scalar(factor: Factor, var: str) -> bool:
    return not mentions(factor.base, var) and not has_reduction(factor.base)


def _sides(body: Expr, j: str, floats: frozenset[str]) -> Iterator[tuple[Factor, bool]]:
    """The factors of a product, each with whether it belongs to the key."""
    match body:
        case Binary("*", left, right) if all(load_names(e) & floats for e in (left, right)):
            if mentions(left, j) != mentions(right, j):
                for side in (left, right):
                    yield from ((f, mentions(side, j)) for f in factors(side))
                return
    yield from ((f, mentions(f.base, j)) for f in factors(body))


def products(expr: Expr, j: str, floats: frozenset[str]) -> list[Product]:
    """The products in `expr`, the outermost first, each once."""
    found: dict[Expr, Product] = {}

    def visit(e: Expr) -> Expr:
        product = product_of(e, j, floats)
        if product is None:
            return map_children(e, visit)
        found[e] = product
        return e

    visit(expr)
    return list(found.values())


# --- the row that a side reads -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Side:
    """One side: the element of q or k itself at column `dd`, and what it becomes (None: itself)."""

    load: Index
    made: Expr | None


def sides_of(
    item: Product, outputs: tuple[str, ...], j: str, floats: frozenset[str]
) -> tuple[Side, Side]:
    """q's side and k's side of a product. Raises `NotAttention`."""
    shared = floats & load_names(item.q) & load_names(item.k)
    rows = frozenset(outputs) - {j}
    return (
        _side("q", item.q, item.var, floats - shared, rows),
        _side("k", item.k, item.var, floats - shared, rows | {j}),
    )


def _side(role: str, expr: Expr, var: str, floats: frozenset[str], rows: frozenset[str]) -> Side:
    expr = _by_heads(expr, floats)
    heads = frozenset(_heads(expr))
    columns = (_bound(expr) - heads) | {var}
    found: dict[str, list[Index]] = {}
    for e in float_loads(expr, floats):
        if any(mentions(e, c) for c in columns):
            assert isinstance(e.base, Name)
            found.setdefault(e.base.id, []).append(e)

    def rank(loads: list[Index]) -> tuple[int, int]:
        """The dimensions that vary by row and head, then how many elements of a row are read."""
        varying = {n for e in loads[0].index for n in rows if mentions(e, n)}
        return len(varying), len(set(loads))

    ranks = sorted(((rank(loads), name) for name, loads in found.items()), reverse=True)
    whole = {name for of, name in ranks if of[0] == ranks[0][0][0]}  # as varied as the first
    part = _first_part(expr, columns, whole)
    if part is not None:
        ranks.insert(0, (ranks[0][0], part))
    elif not ranks or (len(ranks) > 1 and ranks[0][0] == ranks[1][0]):
        names = " and ".join(sorted(name for of, name in ranks if of == ranks[0][0]))
        raise NotAttention(
            f"{role} is made of several inputs before the product ({names})" if names
            else f"the product reads no {role}",
            "concatenate them before the function: one input for q, one for k",
        )  # fmt: skip
    loads = found[ranks[0][1]]
    place = _column_of(role, loads, columns, heads)
    first = next(e for e in loads if not any(mentions(e, h) for h in heads))
    load = Index(first.base, (*first.index[:place], Name(COLUMN), *first.index[place + 1 :]))
    matrix = next((e for e in walk_expr(expr) if is_reduction(e) and mentions(e, var)), None)
    if matrix is not None:
        raise Unprepared(f"{role} is multiplied by a matrix before the product", LLM, matrix)
    here = _tidy_names(rename(expr, {var: Name(COLUMN)}))
    return Side(load, None if here == load else here)


def _first_part(expr: Expr, columns: frozenset[str], names: set[str]) -> str | None:
    """The first of the inputs `names` that a side is joined from: each column is of one of them."""
    for e in walk_expr(expr):
        if isinstance(e, Select) and any(mentions(e.cond, c) for c in columns):
            then, other = (load_names(side) & names for side in (e.then, e.other))
            if then and other and not then & other and then | other == names:
                return _first_part(e.then, columns, {*then}) or min(then)
    return None


def _by_heads(expr: Expr, floats: frozenset[str]) -> Expr:
    """`expr` with each sum over the columns of all heads, which loads take apart, as a sum over the
    heads of sums over the columns of one: heads and columns stand in places of their own."""

    def change(e: Expr) -> Expr:
        match map_children(e, change):
            case Call("sum_over" as fn, (Lambda((var,), body), Num(int(extent)))) as sum_:
                split = {
                    (at, width)
                    for load in float_loads(body, floats)
                    for at, width in map(_column_in(var), load.index)
                    if width
                }
                widths = {width for _, width in split}
                if {at for at, _ in split} != {"floor_div", "floor_mod"} or len(widths) != 1:
                    return sum_
                (width,) = widths
                head, column = Name(f"{var}.head"), Name(f"{var}.column")
                taken = {"floor_div": head, "floor_mod": column}

                def apart(e: Expr) -> Expr:
                    at, of = _column_in(var)(e)
                    return taken[at] if of == width else map_children(e, apart)

                body = apart(body)
                if mentions(body, var) or extent % width:
                    return sum_
                inner = Call(fn, (Lambda((column.id,), body), Num(width)))
                return Call(fn, (Lambda((head.id,), inner), Num(extent // width)))
            case other:
                return other

    return change(expr)


def _column_in(var: str) -> Callable[[Expr], tuple[str, int]]:
    """Whether an expression is the head or the column of a place in a row of all heads, and how
    many columns a head has; ("", 0) where it is neither."""

    def of(e: Expr) -> tuple[str, int]:
        match e:
            case Call("floor_div" | "floor_mod" as fn, (Name(id), Num(int(width)))) if id == var:
                return fn, width
        return "", 0

    return of


def _heads(expr: Expr) -> Iterator[str]:
    """The variables of sums over heads."""
    for e in walk_expr(expr):
        match e:
            case Call(_, (Lambda((head,)), _)) if sums_over_heads(e):
                yield head


def _column_of(
    role: str, loads: list[Index], columns: frozenset[str], heads: frozenset[str]
) -> int:
    """The dimension that is the head's: the one place where the loads of a row differ, but for
    those of all `heads`."""
    places = {
        n
        for load in loads
        for n, e in enumerate(load.index)
        if any(mentions(e, c) for c in columns)
    }
    if len(places) != 1:
        raise Unprepared(
            f"{role} is normalised over more than its columns, such as over all heads"
            if len(places) > 1
            else f"the columns of {role} are no dimension of their own",
            LLM, loads[0],
        )  # fmt: skip
    (place,) = places
    own = next((e for e in loads if not any(mentions(e, h) for h in heads)), loads[0])
    every = {Name(h) for h in heads}
    rows = {
        tuple(own.index[n] if x in every else x for n, x in enumerate(e.index) if n != place)
        for e in loads
    }
    if len(rows) != 1:
        raise Unprepared(
            f"a row of {role} is made of several rows before the product", LLM, loads[-1]
        )
    return place


def _bound(expr: Expr) -> frozenset[str]:
    return frozenset(p for e in walk_expr(expr) if isinstance(e, Lambda) for p in e.params)


def _tidy_names(expr: Expr) -> Expr:
    """Bound variables called c, c2, ... by how deep they stand."""

    def tidy(e: Expr, depth: int) -> Expr:
        if isinstance(e, Lambda):
            depth += 1
            name = "c" if depth == 1 else f"c{depth}"
            body = rename(e.body, {p: Name(name) for p in e.params})
            return Lambda((name,), tidy(body, depth))
        return map_children(e, lambda child: tidy(child, depth))

    return tidy(expr, 0)


def of_heads(role: str, made: Expr, load: Index) -> Expr:
    """`made`, whose sums of sums run over heads: where the element itself, `load`, has its head."""
    heads = {Name(h) for h in _heads(made)}
    for e in walk_expr(made):
        if not isinstance(e, Index) or e.base != load.base:
            continue
        if any(x in heads and own != HEAD for x, own in zip(e.index, load.index, strict=True)):
            raise Unprepared(f"{role} is normalised over its rows, or over batches", LLM, made)
    return made


def by_key_head(made: Expr, kv_head: Expr) -> Expr:
    """What k becomes, with `h` for the key's own head instead of `kv_head` for a query's."""
    own = Name("%g")
    moved = substitute(made, {kv_head: own})
    if mentions(moved, "h"):
        raise NotAttention("k is changed differently for each head of q", LLM, made)
    return rename(moved, {"%g": HEAD})
