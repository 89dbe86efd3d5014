"""The whole numbers that stand in expressions: a window, a prefix, a block.

Inputs that are to prove anything must reach past them: the CPU gates and the job on the GPU do.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.cuir.nodes import Expr, Num, walk_expr


def integers_in(expressions: Iterable[Expr]) -> tuple[int, ...]:
    """The magnitudes of whole numbers that stand in the expressions, from the smallest on."""
    found = {
        abs(node.value)
        for expr in expressions
        for node in walk_expr(expr)
        if isinstance(node, Num)
        and isinstance(node.value, int)
        and not isinstance(node.value, bool)
    }
    return tuple(sorted(found))
