"""The key/value head of a query head: the kernel's own map, or the spec's in its place."""

from __future__ import annotations

from collections.abc import Iterator

from engine.cuir.nodes import Assign, Attr, Expr, Module, Name, Num, Stmt, free_names
from engine.cuir.rewrite import map_expr, map_statements, substitute
from engine.cuir.static.facts import statements
from engine.errors import CuBridgeError, TransferError
from engine.scalar_algebra.evaluate import evaluate
from engine.scalar_algebra.rewrite import load_names
from engine.spec.python.signature import fixed_sizes
from engine.spec.recipes.recipe import Recipe
from engine.transfer.match import Attention
from engine.transfer.rules.base.rule import Case, Rule

COUNTS = ((1, 1), (4, 1), (4, 2), (6, 3), (8, 8), (12, 4))


def check_heads(module: Module, found: Attention, recipe: Recipe) -> None:
    """Raises `TransferError` where the kernel's map is not the spec's and has no place of its own
    that a rule could put another into."""
    if _assigned(module, found) is None:
        apart = heads_apart(module, found, recipe)
        if apart is not None:
            raise TransferError(apart)


def heads_apart(module: Module, found: Attention, recipe: Recipe) -> str | None:
    """How the kernel's map from query head to key/value head differs from the spec's; None where it
    is the same."""
    own = _assigned(module, found) or found.kv_head
    sizes = {"Hq": Attr(Name("args"), "Hq"), "Hkv": Attr(Name("args"), "Hkv")}
    wanted = substitute(recipe.kv_head, {**sizes, "h": found.head})
    if load_names(wanted):
        return "the spec reads the key/value head of a query head from a table"
    for hq, hkv in head_counts(recipe):
        for head in range(hq):
            values = {sizes["Hq"]: Num(hq), sizes["Hkv"]: Num(hkv), found.head: Num(head)}
            results = [_fold(map_expr(e, values.get)) for e in (own, wanted)]
            if results[0] != results[1]:
                return (
                    f"the spec reads key/value head {results[1]} for query head {head} of {hq} "
                    f"(with {hkv} key/value heads); the kernel reads {results[0]}"
                )
    return None


def head_counts(recipe: Recipe) -> Iterator[tuple[int, int]]:
    """Hq and Hkv to compare maps at. A spec whose dimension names say that the head counts are
    equal is held to that alone."""
    own_sizes = [c for c in recipe.constraints if free_names(c) <= {"Hq", "Hkv"}]
    fixed = fixed_sizes(own_sizes)
    for hq, hkv in dict.fromkeys((fixed.get("Hq", q), fixed.get("Hkv", k)) for q, k in COUNTS):
        if all(evaluate(c, {"Hq": hq, "Hkv": hkv}) for c in own_sizes):
            yield hq, hkv


def _assigned(module: Module, found: Attention) -> Expr | None:
    """What the kernel assigns to the name of the key/value head; None where it has none."""
    values = [
        stmt.value
        for stmt in statements(module.function(found.kernel))
        if isinstance(stmt, Assign) and found.kv_head == Name(stmt.target)
    ]
    return values[0] if len(values) == 1 else None


def _fold(expr: Expr) -> int:
    try:
        value = evaluate(expr, {})
    except (CuBridgeError, ArithmeticError, LookupError, TypeError):
        value = None
    if not isinstance(value, int):
        raise TransferError("the map from query head to key/value head is not integer arithmetic")
    return value


def _edit(module: Module, case: Case) -> Module:
    wanted = case.words.of_kernel(case.recipe.kv_head)

    def edit(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Assign) and case.found.kv_head == Name(stmt.target):
            return Assign(stmt.target, wanted)
        return stmt

    return map_statements(module, case.found.kernel, edit)


RULE = Rule(
    "kv_head",
    "Read the spec's key/value heads",
    lambda case: f"{heads_apart(case.module, case.found, case.recipe)}",
    "heads",
    applies=lambda case: heads_apart(case.module, case.found, case.recipe) is not None,
    edit=_edit,
    after=("under_mask",),
)
