"""The exponential of scores that may be any float.

A kernel that folds its scale into exp2 computes `x * c - top * c`, one multiply-add for each
element. Beyond 2^27 what rounding `top * c` leaves is no small exponent any more, and beyond the
type's largest number over c both products overflow: of a row whose scores all hold float32's
smallest number the weights are NaN. `(x - top) * c` is exact where x is top, and costs an
instruction more. So only scores pay that have a part which nothing bounds.
"""

from __future__ import annotations

import math

from engine.cuir.nodes import (
    Binary,
    Call,
    Expr,
    Index,
    Module,
    Name,
    Num,
    Select,
    Unary,
    map_stmt_exprs,
    walk_expr,
)
from engine.cuir.rewrite import Block, map_expr
from engine.cuir.text.quote import rewrites
from engine.spec.recipes.recipe import Recipe
from engine.transfer.match import Attention, Site
from engine.transfer.rules.base.rule import Rule
from engine.transfer.rules.base.score_sites import edit_site

LOGIT = 2.0**17  # |x * scale|: what the kernels' own exponential is right for, with room
LENGTH = 2.0**17  # rows, keys and every size
LARGEST = 2.0**27  # a product with log2(e) keeps an error below 2^4 here
WHOLE = 2.0**31
_BOUNDED = {"tanh": 1.0, "tanh_approx": 1.0, "sigmoid": 1.0, "erf": 1.0, "sin": 1.0, "cos": 1.0}


def unbounded(score: Expr, recipe: Recipe) -> bool:
    """Whether a part of the score may be any float, for logits as models have them."""
    return not magnitude(score, recipe) <= LARGEST


def magnitude(expr: Expr, recipe: Recipe) -> float:
    """The largest |expr| where x times its first factor is at most `LOGIT`; inf where a float
    comes from memory or from the caller."""
    whole = {i.name for i in recipe.inputs if i.dtype not in ("T", "f32")}

    def go(inner: Expr) -> float:
        return magnitude(inner, recipe)

    match expr:
        case Num(value):
            return abs(float(value))
        case (
            Binary("*", Name("x"), factor)
            | Binary("*", factor, Name("x"))
            | Binary("/", Name("x"), factor)
        ):
            read = any(isinstance(e, Index) or e == Name("x") for e in walk_expr(factor))
            number = factor.value if isinstance(factor, Num) else go(factor) if read else 1.0
            large = abs(number) if isinstance(expr, Binary) and expr.op == "*" else 1 / abs(number)
            return LOGIT * max(1.0, large)
        case Name("x"):
            return LOGIT
        case Name(id):
            floats = {i.name for i in recipe.inputs if i.dtype in ("T", "f32")}
            return math.inf if id in floats else WHOLE if id in whole else LENGTH
        case Index(Name(id)):
            return WHOLE if id in whole else math.inf
        case Unary(_, operand):
            return go(operand)
        case Binary("+" | "-", left, right):
            return go(left) + go(right)
        case Binary("*", left, right):
            a, b = go(left), go(right)
            return 0.0 if 0.0 in (a, b) else a * b
        case Binary("/", left, Num(value)) if value != 0:
            return go(left) / abs(value)
        case Binary("//" | ">>", left, _) | Call("floor_div", (left, _)):
            return go(left)
        case Binary("%", _, right) | Call("floor_mod", (_, right)):
            return go(right)
        case Select(_, left, right) | Call("max" | "min", (left, right)):
            return max(go(left), go(right))
        case Call("abs" | "floor" | "ceil" | "f32" | "float" | "i32" | "int", (operand,)):
            return go(operand)
        case Call("rsqrt", (Name("D" | "Dv" | "Nq" | "Nk"),)):
            return 1.0
        case Call("sqrt", (operand,)):
            return max(1.0, go(operand))
        case Call("log" | "log2", (operand,)):
            # Of whole numbers from 1 on; log(0) is -inf, which every exponential takes.
            if any(e == Name("x") for e in walk_expr(operand)):
                return math.inf
            return math.log2(max(2.0, go(operand)))
        case Call(fn):
            return _BOUNDED.get(fn, math.inf)
    return math.inf


def subtract_first(module: Module, found: Attention) -> Module:
    """`exp2(x * c - top * c)` of score tiles as `exp2((x - top) * c)`."""
    change = rewrites("x * c - top * c", "(x - top) * c")

    def edit(site: Site, stmts: Block) -> Block:
        after = site.row_max + 1
        tail = (map_stmt_exprs(s, lambda e: map_expr(e, change)) for s in stmts[after:])
        return (*stmts[:after], *tail)

    return edit_site(module, found, edit)


RULE = Rule(
    "exponent",
    "Subtract the row maximum before the factor",
    "a part of the score may be any float: at the ends of its range the row maximum "
    "times log2(e) overflows, and far before that its rounding is a large exponent",
    "score",
    applies=lambda case: case.softmax and unbounded(case.recipe.score, case.recipe),
    edit=lambda module, case: subtract_first(module, case.found),
    after=("cap",),
)
