"""Additive masks that are made of flags: `(1 - mask) * finfo.min` of an input of ones and zeros.

The least number of a type is another one in each type, and as a factor beyond what float32 holds.
Where an input can only be 0 or 1 (a Bool, or an integer that is declared so), what is added is 0
where the pair stays and removes it elsewhere: a mask, whatever the type.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from engine.cuir.nodes import Binary, Compare, Expr, Index, Name, Num, walk_expr
from engine.errors import CuBridgeError
from engine.scalar_algebra.evaluate import evaluate
from engine.scalar_algebra.rewrite import map_children, rename, substitute
from engine.spec.attention.weights import NotAttention
from engine.spec.expressions import build
from engine.spec.expressions.factors import is_removed

LARGEST = 3.4028234663852886e38  # that float32 holds
FLAG = "%flag"
_REMOVED = Num(float("-inf"))


def with_masks(expr: Expr, ranges: Mapping[str, tuple[int, int]]) -> Expr:
    """`expr` with such products as a choice between 0 and -inf. `ranges` are the least and the
    greatest value of inputs that have few of them."""

    def visit(e: Expr) -> Expr:
        e = map_children(e, visit)
        match e:
            case Binary("*", left, right) if _beyond(left) or _beyond(right):
                return _chosen(e, ranges) or e
        return e

    return visit(expr)


def refuse_factors(score: Expr) -> None:
    """Raises `NotAttention` for a factor in a score that float32 does not hold."""
    for e in walk_expr(score):
        if _beyond(e):
            raise NotAttention(
                "an input is multiplied by the least number of its type, and a kernel cannot know "
                "that it is 0 or 1",
                'declare the mask as Bool, or its values: `mask: Int32[Tensor, "B N"],  # 0..1`',
                score,
            )


def _beyond(expr: Expr) -> bool:
    value = build.value_of(expr)
    return value is not None and LARGEST < abs(value) < float("inf")


def _chosen(expr: Expr, ranges: Mapping[str, tuple[int, int]]) -> Expr | None:
    """The product as a choice; None where its values are others than 0 and ones that remove."""
    loads = {e for e in walk_expr(expr) if isinstance(e, Index)}
    if len(loads) != 1:
        return None
    (load,) = loads
    if not isinstance(load.base, Name) or load.base.id not in ranges:
        return None
    low, high = ranges[load.base.id]
    kept = [n for n, value in _values(expr, load, low, high) if value == 0]
    removed = [n for n, value in _values(expr, load, low, high) if is_removed(Num(value))]
    if not kept or len(kept) + len(removed) != high - low + 1:
        return None
    stays: Expr = Num(False)
    for n in kept:
        stays = build.either(stays, Compare("==", load, Num(n)))
    return build.select(stays, Num(0.0), _REMOVED)


def _values(expr: Expr, load: Index, low: int, high: int) -> Iterator[tuple[int, float]]:
    """What the product is for each value of the input."""
    body = substitute(expr, {load: Name(FLAG)})
    for n in range(low, high + 1):
        try:
            yield n, float(evaluate(rename(body, {FLAG: Num(n)}), {}))
        except (CuBridgeError, KeyError, TypeError, ValueError, ArithmeticError):
            return
