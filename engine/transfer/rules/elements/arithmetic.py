"""The arithmetic of an element, in as few instructions as the same value takes.

The matmuls leave a few instructions of time per element of a score tile, and special functions run
at an eighth of the rate of others or less:

- a division by what is the same for all elements is a multiplication by its reciprocal;
- factors that are the same for all elements are multiplied with each other, not with the element
  (`hoist_shared` then computes them once);
- sigmoid(u) = 1 / (1 + 2^(-u log2 e)) and tanh(u) = 2 sigmoid(2 u) - 1 are one exponential and one
  reciprocal, with the logarithm's base among the factors. Both have an absolute error below 2^-21
  (`exp2_approx` 2^-22.5 relative, `rcp_approx` 2^-23), and exact tanh costs several times as much.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Set
from dataclasses import dataclass, replace

from engine.cuir.nodes import (
    Assign,
    Attr,
    Binary,
    Call,
    Expr,
    Index,
    Lambda,
    Module,
    Name,
    Num,
    Stmt,
    Unary,
    free_names,
    map_stmt_exprs,
    rebuild,
    walk_expr,
)
from engine.cuir.rewrite import map_expr, map_statements
from engine.transfer.match import Attention
from engine.transfer.rules.base.hoist import Labels, hoist
from engine.transfer.rules.base.rule import Rule
from engine.transfer.rules.base.score_sites import is_element_op

ELEMENT = frozenset({"x", "s", "i", "j"})
LOG2E = math.log2(math.e)
# Up to this factor an absolute error of 2^-21 is below what rounding a score of that size to bf16
# or f16 costs by far; beyond it tanh stays exact, which keeps the relative error of small values.
MOST_TANH = 1024.0
FLOAT32 = (2.0**-126, (2.0 - 2.0**-23) * 2.0**127)
"""The smallest normal number and the largest one."""


@dataclass(frozen=True, slots=True)
class Positive:
    """`factor * value + shift` with positive `factor`: where a softmax follows, the factor belongs
    into its exponential and the shift leaves the weights as they are. `value` is a sigmoid of twice
    `inside`."""

    factor: float
    value: Expr
    shift: float
    inside: Expr


def cheap(expr: Expr) -> Expr:
    """`expr` over an element's x (or s), i and j, in fewer instructions."""
    match expr:
        case Binary("*", left, right) if _is_whole(left) and _is_whole(right):
            pass
        case Binary("*" | "/"):
            product = _product(expr)
            capped = _capped(product)
            if capped is None:
                return product.to_expr()
            number, inside = capped
            curve = _sigmoid(_scaled(inside, 2.0 * LOG2E))
            return Binary("-", Num(number), Binary("*", Num(2.0 * number), curve))
        case Call("tanh", (inside,)):
            curve = _sigmoid(_scaled(cheap(inside), 2.0 * LOG2E))
            return Binary("-", Num(1.0), Binary("*", Num(2.0), curve))
        case Call("sigmoid", (inside,)):
            return _sigmoid(_scaled(cheap(inside), -LOG2E))
    return _inside(expr)


def positive_multiple(expr: Expr) -> Positive | None:
    """c tanh(u) as 2 c sigmoid(2 u) - c, for a number c > 0; None for anything else."""
    if not isinstance(expr, Binary | Call):
        return None
    capped = _capped(_product(expr))
    if capped is None or capped[0] <= 0:
        return None
    number, inside = capped
    return Positive(2.0 * number, _sigmoid(_scaled(inside, -2.0 * LOG2E)), -number, inside)


def _sigmoid(power: Expr) -> Expr:
    """1 / (1 + 2^power)."""
    return Call("rcp_approx", (Binary("+", Num(1.0), Call("exp2_approx", (power,))),))


# --- products --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Product:
    """number * shared * own: what is known, what all elements share, what each has itself."""

    number: float
    shared: tuple[Expr, ...]
    own: tuple[Expr, ...]

    def times(self, number: float) -> _Product:
        if not _fits(self.number * number):
            return _Product(number, (), (self.to_expr(),))
        return replace(self, number=self.number * number)

    def of_shared(self) -> Expr | None:
        """number * shared, or None where that is one."""
        parts = list(self.shared)
        if self.number != 1.0 or (not parts and not self.own):
            parts.append(Num(self.number))
        return _times(parts) if parts else None

    def to_expr(self) -> Expr:
        shared = self.of_shared()
        return _times([*self.own, *([] if shared is None else [shared])])


def _fits(number: float) -> bool:
    """Whether float32 holds it with all its digits: what overflows is not folded into another."""
    return number == 0.0 or FLOAT32[0] <= abs(number) <= FLOAT32[1]


def _times(parts: list[Expr]) -> Expr:
    first, *rest = parts
    for part in rest:
        first = Binary("*", first, part)
    return first


def is_shared(expr: Expr) -> bool:
    """True when every element has the same value; values from memory are left to their own rule."""
    return not (free_names(expr) & ELEMENT or any(isinstance(e, Index) for e in walk_expr(expr)))


def _product(expr: Expr) -> _Product:
    """`expr` as a product. Only float factors move: integers keep their order and range."""
    match expr:
        case Num(int() | float() as value) if not isinstance(value, bool):
            return _Product(float(value), (), ())
        case Unary("-", inner):
            return _product(inner).times(-1.0)
        case Binary("*", left, right) if not (_is_whole(left) and _is_whole(right)):
            a, b = _product(left), _product(right)
            if not _fits(a.number * b.number):
                return _Product(1.0, (), (expr,))
            return _Product(a.number * b.number, a.shared + b.shared, a.own + b.own)
        case Binary("/", left, right) if is_shared(right):
            a, b = _product(left), _product(right)
            if b.number == 0.0 or not _fits(1.0 / b.number) or not _fits(a.number / b.number):
                return _Product(1.0, (), (expr,))
            over = () if not b.shared else (Binary("/", Num(1.0), _times(list(b.shared))),)
            return _Product(a.number / b.number, a.shared + over, a.own)
    if is_shared(expr):
        return _Product(1.0, (expr,), ())
    whole_or_capped = isinstance(expr, Binary) or (isinstance(expr, Call) and expr.fn == "tanh")
    return _Product(1.0, (), (_inside(expr) if whole_or_capped else cheap(expr),))


def _inside(expr: Expr) -> Expr:
    """`expr` with its parts made cheap."""
    return map_expr(expr, lambda node: cheap(node) if node is not expr else None)


def _is_whole(expr: Expr) -> bool:
    """True for what may be an integer: a product of two such keeps its place."""
    names = free_names(expr)
    return (
        "x" not in names
        and "s" not in names
        and not any(
            (isinstance(e, Num) and isinstance(e.value, float)) or isinstance(e, Call | Index)
            for e in walk_expr(expr)
        )
    )


def _capped(product: _Product) -> tuple[float, Expr] | None:
    """(c, u) of c * tanh(u) with a number c that is not too large."""
    match product:
        case _Product(number, (), (Call("tanh", (inside,)),)) if 0.0 < abs(number) <= MOST_TANH:
            return number, inside
    return None


def _scaled(expr: Expr, number: float) -> Expr:
    """`expr * number`. Of a sum of one own term and shared ones each is multiplied, so that the
    element itself costs one multiply-add."""
    terms = _terms(expr, 1.0)
    own = [t.times(number).to_expr() for t in terms if t.own]
    shared = [t.times(number).to_expr() for t in terms if not t.own]
    if len(own) != 1 or not all(_fits(t.number * number) for t in terms):
        return _product(expr).times(number).to_expr()
    return Binary("+", own[0], _sum(shared)) if shared else own[0]


def _sum(parts: list[Expr]) -> Expr:
    first, *rest = parts
    for part in rest:
        first = Binary("+", first, part)
    return first


def _terms(expr: Expr, sign: float) -> list[_Product]:
    match expr:
        case Binary("+", left, right):
            return _terms(left, sign) + _terms(right, sign)
        case Binary("-", left, right):
            return _terms(left, sign) + _terms(right, -sign)
    return [_product(expr).times(sign)]


# --- once for all elements -------------------------------------------------------------------


def hoist_shared(module: Module, found: Attention) -> Module:
    """What the maps of score tiles compute alike for every element, computed before the loop."""
    kernel = module.function(found.kernel)
    labels = Labels(kernel)
    made: dict[str, Assign] = {}

    def name_of(expr: Expr, wanted: str) -> Name:
        name = labels.of(expr, wanted)
        made[name] = Assign(name, expr)
        return Name(name)

    def edit(stmt: Stmt) -> Stmt:
        mine = is_element_op(stmt, found, "map")
        return map_stmt_exprs(stmt, lambda e: _in_lambdas(e, name_of)) if mine else stmt

    edited = map_statements(module, kernel.name, edit)
    for statement in made.values():
        edited = hoist(edited, kernel.name, statement)
    return edited


def _in_lambdas(expr: Expr, name_of: Callable[[Expr, str], Name]) -> Expr:
    def change(node: Expr) -> Expr | None:
        if not isinstance(node, Lambda):
            return None
        return Lambda(node.params, _named(node.body, frozenset(node.params), "value", name_of))

    return map_expr(expr, change)


def _named(expr: Expr, params: Set[str], place: str, name_of: Callable[[Expr, str], Name]) -> Expr:
    """`expr` with its largest parts that read no parameter replaced by names."""
    if isinstance(expr, Num | Name | Attr):
        return expr
    memory = any(isinstance(e, Index) for e in walk_expr(expr))
    if not free_names(expr) & params and not memory:
        return name_of(expr, f"score_{place}")
    within = _PLACES.get(expr.op, "value") if isinstance(expr, Binary) else "value"
    return rebuild(expr, lambda child: _named(child, params, within, name_of))


_PLACES = {"*": "factor", "/": "factor", "+": "shift", "-": "shift"}


RULE = Rule(
    "shared",
    "Compute what all elements share once",
    "a factor or a constant that is the same for every element is one value before "
    "the loop, not an instruction per element",
    "score",
    applies=lambda case: case.rest is not None or not case.softmax,
    edit=lambda module, case: hoist_shared(module, case.found),
    after=("next_tile",),
)
