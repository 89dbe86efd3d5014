"""The distance between the ends of queries and keys, computed once instead of per element.

Bottom-right aligned masks and biases read `args.Nk - args.Nq` in every element's predicate. As one
integer before the loop it costs one register; left in the predicate it is loaded and added again
for each, and long predicates become branches.
"""

from __future__ import annotations

from engine.cuir.nodes import (
    Assign,
    Attr,
    Binary,
    Call,
    Expr,
    Lambda,
    Module,
    Name,
    Stmt,
    map_stmt_exprs,
)
from engine.cuir.rewrite import map_expr, map_statements, read_names
from engine.transfer.linear import Linear, linear
from engine.transfer.match import Attention
from engine.transfer.rules.base.input_views import behind_views
from engine.transfer.rules.base.rule import Rule
from engine.transfer.rules.base.score_sites import is_element_op

KEYS, QUERIES = Attr(Name("args"), "Nk"), Attr(Name("args"), "Nq")
DISTANCE = Binary("-", KEYS, QUERIES)


def hoist_offset(module: Module, found: Attention) -> Module:
    """`Nk - Nq` in the score's elementwise ops becomes a name that is assigned once."""
    kernel = module.function(found.kernel)
    taken = read_names(kernel.body) | {s.target for s in kernel.body if isinstance(s, Assign)}
    name = Name("offset" if "offset" not in taken else "key_offset")

    def edit(stmt: Stmt) -> Stmt:
        mine = is_element_op(stmt, found)
        return map_stmt_exprs(stmt, lambda e: _in_lambdas(e, name)) if mine else stmt

    edited = map_statements(module, found.kernel, edit)
    if edited == module:
        return module
    return behind_views(edited, found.kernel, [Assign(name.id, DISTANCE)])


def _in_lambdas(expr: Expr, name: Name) -> Expr:
    """Sums inside the lambdas of `expr` with `Nk - Nq` replaced by `name`."""

    def within(node: Expr) -> Expr | None:
        if not isinstance(node, Binary) or node.op not in ("+", "-"):
            return None
        form = linear(node)
        sign = form.coefficient(KEYS)
        if abs(sign) != 1 or form.coefficient(QUERIES) != -sign:
            return None
        rest = form.without(KEYS).without(QUERIES)
        return rest.plus(Linear(((name, sign),), 0)).to_expr()

    def change(node: Expr) -> Expr | None:
        return (
            Lambda(node.params, map_expr(node.body, within)) if isinstance(node, Lambda) else None
        )

    return map_expr(expr, change) if isinstance(expr, Call) else expr


RULE = Rule(
    "offset",
    "Compute the distance of the sequences' ends once",
    "Nk - Nq is the same for every element: one integer before the loop",
    "mask",
    applies=lambda case: case.reads("Nk"),
    edit=lambda module, case: hoist_offset(module, case.found),
    after=("output",),
)
