"""Values of expressions that sum over the columns of rows, in float64."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from engine.cuir.nodes import Call, Expr, Index, Lambda, Name
from engine.cuir.scalar import evaluate
from engine.scalar_algebra.rewrite import map_children
from engine.spec.recipes.recipe import sums_over_heads


def evaluated(expr: Expr, known: Mapping[str, Any]) -> Any:
    """The values of `expr` in float64, its sums and maxima column by column: `known` has what they
    read, sizes, inputs and indices, and `o` [..., columns] where the output is read."""
    env = dict(known)
    made: dict[Expr, Expr] = {}

    def reduced(e: Expr) -> Expr:
        if e in made:
            return made[e]
        match e if sums_over_heads(e) else map_children(e, reduced):
            case Call("sum_over" | "max_over" as fn, (Lambda((column,), body), extent)):
                total = torch.tensor(0.0 if fn == "sum_over" else -math.inf, dtype=torch.float64)
                for n in range(int(evaluate(extent, env))):
                    here = env | {column: n}
                    own = _own_column(body, here)
                    term = evaluated(own, here) if sums_over_heads(e) else evaluate(own, here)
                    term = torch.as_tensor(term).to(torch.float64)
                    total = total.to(term.device)
                    total = total + term if fn == "sum_over" else torch.maximum(total, term)
                name = f"%{fn}{len(made)}"
                env[name] = total
                made[e] = Name(name)
                return made[e]
            case other:
                return other

    return evaluate(reduced(expr), env)


def _own_column(expr: Expr, known: dict[str, Any]) -> Expr:
    """`expr` with the output's element at a column as a name, which `known` then has."""
    match expr:
        case Index(Name("o"), (place,)):
            column = int(evaluate(place, known))
            known[f"%o{column}"] = known["o"][..., column : column + 1]
            return Name(f"%o{column}")
    return map_children(expr, lambda e: _own_column(e, known))
