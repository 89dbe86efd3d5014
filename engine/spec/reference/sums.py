"""Values of expressions that sum over the columns of rows, in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from engine.cuir.nodes import Call, Expr, Index, Lambda, Name
from engine.cuir.scalar import evaluate
from engine.scalar_algebra.rewrite import map_children


def rows_made(expr: Expr, env: Mapping[str, Any]) -> torch.Tensor:
    """What rows of q or k become, in float64: `expr` over the sizes, inputs and indices of `env`,
    whose `dd` runs over the last dimension of what comes out, and nothing else does."""
    known = dict(env)
    sums: dict[Expr, Name] = {}

    def reduced(e: Expr) -> Expr:
        if e in sums:
            return sums[e]
        match map_children(e, reduced):
            case Call("sum_over" | "max_over" as fn, (Lambda((var,), body), extent)):
                count = int(evaluate(extent, known))
                values = torch.as_tensor(
                    evaluate(body, known | {var: torch.arange(count, device=known["dd"].device)})
                ).to(torch.float64)
                values = values.broadcast_to((*values.shape[:-1], count))
                name = f"%{len(known)}"
                known[name] = (values.sum if fn == "sum_over" else values.amax)(-1, keepdim=True)
                sums[e] = Name(name)
                return sums[e]
            case other:
                return other

    made = reduced(expr)
    return torch.as_tensor(evaluate(made, known)).to(torch.float64)


def _own_column(expr: Expr, known: dict[str, Any]) -> Expr:
    """`expr` with the output's element at a column as a name, which `known` then has."""
    match expr:
        case Index(Name("o"), (place,)):
            column = int(evaluate(place, known))
            known[f"%o{column}"] = known["o"][..., column : column + 1]
            return Name(f"%o{column}")
    return map_children(expr, lambda e: _own_column(e, known))


def evaluated(expr: Expr, known: Mapping[str, Any]) -> Any:
    """The values of `expr` in float64, its sums column by column: `known` has what they read."""
    env = dict(known)
    sums: dict[Expr, Expr] = {}

    def reduced(e: Expr) -> Expr:
        if e in sums:
            return sums[e]
        match map_children(e, reduced):
            case Call("sum_over", (Lambda((column,), body), extent)):
                total: Any = 0.0
                for n in range(int(evaluate(extent, env))):
                    here = env | {column: n}
                    term = torch.as_tensor(evaluate(_own_column(body, here), here))
                    total = total + term.to(torch.float64)
                name = f"%sum{len(sums)}"
                env[name] = total
                sums[e] = Name(name)
                return sums[e]
            case other:
                return other

    return evaluate(reduced(expr), env)
