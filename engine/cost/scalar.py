"""Instructions of a per-element expression.

A part of an expression costs one operation for each value that it can have: one per element where
it depends on the element or on row and column both, one per row or column where it depends on that
alone, and nothing where it depends on neither, since it stands before the loop. A product that is
added to something is one FFMA.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType

from engine.cost.demand import Demand
from engine.cuir.functions import CASTS, CONSTANTS, FUNCTIONS
from engine.cuir.nodes import (
    Attr,
    Binary,
    Bool,
    Call,
    Compare,
    Expr,
    Index,
    Name,
    Num,
    Select,
    Unary,
    children,
    walk_expr,
)

TABLE = Path(__file__).with_name("functions.toml")
ELEMENT, ROW, COLUMN = "element", "row", "column"
Varies = frozenset[str]
BOTH: Varies = frozenset((ROW, COLUMN))


@cache
def functions() -> Mapping[str, Demand]:
    """Instructions of each scalar function and of the operators that are no single instruction."""
    rows = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return MappingProxyType({name: Demand(**row) for name, row in rows.items()})


@dataclass(frozen=True, slots=True)
class Lanes:
    """Operations that one value per element, per row or per column takes: all threads' copies."""

    element: float
    row: float
    column: float

    def of(self, varies: Varies) -> float:
        if ELEMENT in varies or varies >= BOTH:
            return self.element
        if ROW in varies:
            return self.row
        return self.column if COLUMN in varies else 0.0


@dataclass(frozen=True, slots=True)
class _Value:
    """What is known of a part: on what it varies, whether it is a float, the latency to it.

    `product` is the demand of a multiplication at its root, which an addition takes in.
    """

    varies: Varies
    real: bool
    path: Demand
    product: Demand | None = None


def expression_cost(
    expr: Expr,
    varies: Mapping[str, Varies],
    whole: frozenset[str],
    lanes: Lanes,
    lines: float = 8.0,
) -> Demand:
    """Instructions of `expr` over a tile, and the latency of its critical path once.

    `varies` says of each parameter on what it depends, `whole` names those that are whole numbers.
    Names that are not there are the same for all elements. A load per element touches `lines` cache
    lines for a warp: eight where it holds an accumulator's rows, one for neighbouring columns.
    """
    walk = _Walk(varies, whole, lanes, lines)
    value = walk.value(expr)
    return walk.spent + value.path


def read_late(condition: Expr) -> frozenset[Attr]:
    """The argument fields that a condition of three parts or more reads only where its first part
    leaves it open. Two parts are compiled without a branch, and more where they read none."""
    first, *rest = _parts(condition)
    return _fields(*rest) - _fields(first) if len(rest) > 1 else frozenset()


def _parts(condition: Expr) -> list[Expr]:
    match condition:
        case Bool(_, left, right):
            return [*_parts(left), *_parts(right)]
    return [condition]


def _fields(*parts: Expr) -> frozenset[Attr]:
    return frozenset(e for part in parts for e in walk_expr(part) if isinstance(e, Attr))


class _Walk:
    def __init__(
        self, varies: Mapping[str, Varies], whole: frozenset[str], lanes: Lanes, lines: float
    ) -> None:
        self.varies, self.whole, self.lanes, self.lines = varies, whole, lanes, lines
        self.spent = Demand()
        self.seen: dict[Expr, _Value] = {}

    def value(self, expr: Expr) -> _Value:
        """The part's value; its instructions are spent once, however often it stands there."""
        if expr not in self.seen:
            self.seen[expr] = self.made(expr)
        return self.seen[expr]

    def spend(self, each: Demand, varies: Varies) -> Demand:
        """Notes one operation per value; what it took."""
        took = each.times(self.lanes.of(varies))
        self.spent = self.spent + took
        return took

    def result(self, each: Demand, parts: list[_Value], real: bool) -> _Value:
        varies = frozenset[str]().union(*(p.varies for p in parts)) if parts else frozenset()
        self.spend(each, varies)
        return _Value(varies, real, self.after(parts, each, varies))

    def after(self, parts: list[_Value], each: Demand, varies: Varies) -> Demand:
        """The longest path to the parts, and this step; what does not vary has been waited for."""
        longest = max((p.path for p in parts), key=_steps, default=Demand())
        if not varies:
            return Demand()
        own = Demand(
            special=min(each.mufu, 2.0), loads=min(each.memory, 1.0),
            arithmetic=min(each.fp32 + each.alu, 12.0),
        )  # fmt: skip
        return longest + own

    def made(self, expr: Expr) -> _Value:
        table = functions()
        match expr:
            case Num(number):
                return _Value(frozenset(), isinstance(number, float), Demand())
            case Name(id):
                varies = self.varies.get(id, frozenset())
                return _Value(varies, id not in self.whole and id not in ("i", "j"), Demand())
            case Attr():
                return _Value(frozenset(), True, Demand())
            case Unary(_, operand):
                inner = self.value(operand)  # a sign or a negation is part of the instruction
                return _Value(inner.varies, inner.real, inner.path)
            case Binary(op, left, right):
                return self.binary(op, left, right)
            case Compare(_, left, right):
                parts = [self.value(left), self.value(right)]
                return self.result(Demand(alu=1), parts, False)
            case Bool(_, left, right):
                parts = [self.value(left), self.value(right)]
                return replace(self.result(Demand(), parts, False), real=False)
            case Select(cond, then, other):
                parts = [self.value(e) for e in (cond, then, other)]
                return self.result(Demand(alu=1), parts, parts[1].real)
            case Index(base, index):
                parts = [self.value(e) for e in index]
                if not isinstance(base, Name):
                    parts.append(self.value(base))
                # The address of an element is a multiplication and two additions.
                varies = frozenset[str]().union(*(p.varies for p in parts))
                dense = ELEMENT in varies or varies >= BOTH
                lines = self.lines if dense else 1.0
                made = self.result(Demand(memory=lines, fp32=1, alu=2, l2=4), parts, True)
                if dense and self.lines > 1.0:
                    # A value for every pair: no cache holds such a tensor until it is read again.
                    path = replace(made.path, loads=made.path.loads - 1, far=made.path.far + 1)
                    return replace(made, path=path)
                return made
            case Call(fn, args):
                parts = [self.value(a) for a in args]
                if fn in FUNCTIONS:
                    real = FUNCTIONS[fn].gives == "float" or any(p.real for p in parts)
                    return self.result(table.get(fn, Demand(alu=1)), parts, real)
                if fn in CASTS:
                    to_real = CASTS[fn] not in ("i32", "i64", "bool")
                    turned = bool(parts) and parts[0].real != to_real
                    each = Demand(alu=1) if to_real else Demand(mufu=1)
                    return self.result(each if turned else Demand(), parts, to_real)
                return self.result(Demand(), parts, False)
        parts = [self.value(e) for e in children(expr)]
        return self.result(Demand(alu=1), parts, any(p.real for p in parts))

    def binary(self, op: str, left: Expr, right: Expr) -> _Value:
        table = functions()
        parts = [self.value(left), self.value(right)]
        real = any(p.real for p in parts)
        if op in ("/", "//", "%"):
            name = "/" if op == "/" else "//"
            constant = isinstance(right, Num) or (isinstance(right, Name) and right.id in CONSTANTS)
            return self.result(table[f"{name} constant" if constant else name], parts, op == "/")
        if op == "*":
            made = self.result(Demand(fp32=1), parts, real)
            return replace(made, product=Demand(fp32=1).times(self.lanes.of(made.varies)))
        if op in ("+", "-"):
            varies = parts[0].varies | parts[1].varies
            for part in parts:
                # Multiplied and added per the same element: one FFMA (or IMAD).
                if part.product is not None and self.lanes.of(part.varies) == self.lanes.of(varies):
                    self.spend(Demand(fp32=1), varies)
                    self.spent = self.spent + part.product.times(-1.0)
                    return _Value(varies, real, self.after(parts, Demand(), varies))
            # I and J convert where they meet a float.
            turned = sum(1 for p in parts if real and not p.real and p.varies)
            each = Demand(fp32=1) if real else Demand(alu=1)
            return self.result(each + Demand(alu=1).times(turned), parts, real)
        return self.result(Demand(alu=1), parts, False)


def _steps(path: Demand) -> float:
    return 4 * path.arithmetic + 23 * path.special + 262 * path.loads + 800 * path.far
