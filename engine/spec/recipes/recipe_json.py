"""A recipe as JSON and back: expressions are CuIR text. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from engine.cuir.nodes import Expr
from engine.cuir.parser import parse_expr
from engine.cuir.printer import print_expr
from engine.errors import CuirError
from engine.spec.recipes.recipe import (
    Clause,
    EmptyRows,
    Input,
    LseBase,
    Other,
    Recipe,
    Role,
    Source,
)

SCHEMA = 2


def recipe_to_json(recipe: Recipe) -> dict[str, Any]:
    """Plain JSON values; `recipe_from_json` gives the equal recipe."""

    def text(expr: Expr | None) -> str | None:
        return None if expr is None else print_expr(expr)

    before = {"q": recipe.q, "k": recipe.k}
    return {
        "schema": SCHEMA,
        "source": recipe.source,
        "inputs": [
            {
                "name": i.name,
                "role": i.role,
                "dtype": i.dtype,
                "dims": list(i.dims),
                "derive": i.derive,
            }
            | ({} if i.between is None else {"between": list(i.between)})
            for i in recipe.inputs
        ],
        "score": text(recipe.score),
        "keep": text(recipe.keep),
        "weight": text(recipe.weight),
        "kv_head": text(recipe.kv_head),
        **{role: print_expr(made) for role, made in before.items() if made is not None},
        "output_dims": list(recipe.output_dims),
        "empty_rows": recipe.empty_rows,
        **({} if recipe.late is None else {"late": print_expr(recipe.late)}),
        "sink": text(recipe.sink),
        "output": text(recipe.output),
        **({} if recipe.other is None else {"other": _other_to_json(recipe.other)}),
        "lse": recipe.lse,
        "lse_dims": list(recipe.lse_dims),
        "merged": recipe.merged,
        "constraints": [text(c) for c in recipe.constraints],
        "clauses": [
            {"kind": c.kind, "words": c.words, "lines": list(c.lines)} for c in recipe.clauses
        ],
    }


def recipe_from_json(data: Mapping[str, Any]) -> Recipe:
    """The recipe in `data`. Raises `ValueError` on anything else."""
    try:
        if data["schema"] == 1:  # a factor on the output was all that followed the sum
            factor = data["output_factor"]
            output = "o" if factor is None else f"o * ({factor})"
            own = {"sink": None, "output": output, "merged": False, "lse": None}
            data = {**data, "schema": SCHEMA, **own, "lse_dims": ("B", "Hq", "Nq")}
        if data["schema"] != SCHEMA:
            raise ValueError(f"recipe schema {data['schema']!r} is not {SCHEMA}")
        return Recipe(
            source=_one_of(data["source"], get_args(Source)),
            inputs=tuple(
                Input(
                    str(i["name"]), _one_of(i["role"], get_args(Role)), str(i["dtype"]),
                    tuple(map(str, i["dims"])), None if i["derive"] is None else str(i["derive"]),
                    _between(i.get("between")),
                )
                for i in data["inputs"]
            ),
            score=_expr(data["score"]),
            keep=_expr(data["keep"]),
            weight=None if data["weight"] is None else _expr(data["weight"]),
            kv_head=_expr(data["kv_head"]),
            output_dims=tuple(map(str, data["output_dims"])),
            q=_expr(data["q"]) if "q" in data else None,
            k=_expr(data["k"]) if "k" in data else None,
            empty_rows=_one_of(data["empty_rows"], get_args(EmptyRows)),
            late=_expr(data["late"]) if "late" in data else None,
            sink=None if data["sink"] is None else _expr(data["sink"]),
            output=_expr(data["output"]),
            other=_other(data["other"]) if "other" in data else None,
            lse=_one_of(data["lse"], (None, *get_args(LseBase))),
            lse_dims=tuple(map(str, data["lse_dims"])),
            merged=bool(data["merged"]),
            constraints=tuple(map(_expr, data["constraints"])),
            clauses=tuple(
                Clause(str(c["kind"]), str(c["words"]), tuple(map(int, c["lines"])))
                for c in data["clauses"]
            ),
        )  # fmt: skip
    except (KeyError, TypeError, CuirError) as error:
        raise ValueError(f"not a recipe: {error}") from None


def _other_to_json(other: Other) -> dict[str, str]:
    return {"q": other.q, "k": other.k, "value": print_expr(other.value)}


def _other(data: Mapping[str, Any]) -> Other:
    return Other(str(data["q"]), str(data["k"]), _expr(data["value"]))


def _between(ends: Any) -> tuple[str, str] | None:
    if ends is None:
        return None
    low, high = (print_expr(_expr(str(end))) for end in ends)
    return low, high


def _expr(text: str) -> Expr:
    return parse_expr(text, "recipe")


def _one_of(value: Any, allowed: tuple[Any, ...]) -> Any:
    if value not in allowed:
        raise ValueError(f"{value!r} is none of {', '.join(map(str, allowed))}")
    return value
