"""The kernel's map from query head to key/value head must be the spec's."""

from __future__ import annotations

from engine.cuir.facts import statements
from engine.cuir.nodes import Assign, Attr, Expr, Module, Name, Num
from engine.errors import CuBridgeError, TransferError
from engine.scalar_algebra.evaluate import evaluate
from engine.spec.recipe import Recipe
from engine.transfer.match import Attention
from engine.transfer.rewrite import free_names, map_expr, substitute


def check_heads(module: Module, found: Attention, recipe: Recipe) -> None:
    """The kernel's own map from query head to key/value head must be the spec's."""
    kernel = module.function(found.kernel)
    own = found.kv_head
    for stmt in statements(kernel):
        if isinstance(stmt, Assign) and own == Name(stmt.target):
            own = stmt.value
    sizes = {"Hq": Attr(Name("args"), "Hq"), "Hkv": Attr(Name("args"), "Hkv")}
    wanted = substitute(recipe.kv_head, {**sizes, "h": found.head})
    # A spec whose dimension names say that the head counts are equal is held to that alone.
    own_sizes = [c for c in recipe.constraints if free_names(c) <= {"Hq", "Hkv"}]
    for hq, hkv in ((1, 1), (4, 1), (4, 2), (6, 3), (8, 8), (12, 4)):
        if not all(evaluate(c, {"Hq": hq, "Hkv": hkv}) for c in own_sizes):
            continue
        for head in range(hq):
            values = {sizes["Hq"]: Num(hq), sizes["Hkv"]: Num(hkv), found.head: Num(head)}
            results = [_fold(map_expr(e, values.get)) for e in (own, wanted)]
            if results[0] != results[1]:
                raise TransferError(
                    f"the spec reads key/value head {results[1]} for query head {head} of {hq} "
                    f"(with {hkv} key/value heads); the kernel reads {results[0]}"
                )


def _fold(expr: Expr) -> int:
    try:
        value = evaluate(expr, {})
    except (CuBridgeError, ArithmeticError, LookupError, TypeError):
        value = None
    if not isinstance(value, int):
        raise TransferError("the map from query head to key/value head is not integer arithmetic")
    return value
