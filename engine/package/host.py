"""What a kernel is to a library that calls attention: its mask and score, or why it is none."""

from __future__ import annotations

import math
import re
from typing import Any

from engine.cuir.nodes import Compare, Expr, Index, Name, free_names, names_in
from engine.cuir.printer import print_expr
from engine.scalar_algebra.evaluate import evaluate
from engine.scalar_algebra.rewrite import conjuncts
from engine.spec.python.signature import Asked, recipe_of
from engine.spec.recipes.recipe import Recipe
from engine.transfer.rules.launches.head_map import head_counts

# As recipes say them: bottom-right, the last query beside the last key.
_CAUSAL = "j <= i + Nk - Nq"
_WINDOW = re.compile(r"j >= i \+ Nk - Nq - (\d+)")
_OF_SCORE = frozenset(("x", "D", "Dv", "LOG2E", "LN2"))


def host_facts(asked: Asked, given: tuple[str, ...]) -> dict[str, Any]:
    """`causal`, `window` (keys that a row sees, None for all), `documents` (the inputs with a
    number for each query and each key), `score` (over x and D) and `sdpa_refused` (why SDPA and
    diffusers cannot ask for it, "" where they can); or `refused`, and why.

    `given` are the extra inputs that a call of the kernel needs.
    """
    recipe = recipe_of(asked)
    if recipe is None:
        return {"refused": "no rule reads its spec, so nothing says what its mask and score are"}
    for changes, what in (
        (recipe.weight is not None or recipe.late is not None, "its weights are no softmax's"),
        (recipe.sink is not None, "its softmax has a sink"),
        (recipe.changes_output, "it changes the output"),
        (recipe.lse is not None or recipe.merged, "its output is none that a library asks for"),
    ):
        if changes:
            return {"refused": what}
    if recipe.changes_operands:
        return {"refused": "it changes q or k before their product, which no library leaves to it"}
    if not _plain_heads(recipe):
        return {"refused": "its query heads read other key heads than a library's"}
    if not names_in(recipe.score) <= _OF_SCORE:
        score = print_expr(recipe.score)
        return {"refused": f"its score ({score}) is none that a library asks for"}
    causal, window, documents = False, None, None
    for part in conjuncts(recipe.keep):
        text = print_expr(part)
        if text == _CAUSAL:
            causal = True
        elif causal and (found := _WINDOW.fullmatch(text)) is not None:
            window = int(found[1]) + 1
        elif documents is None and (pair := _same_document(part, recipe)) is not None:
            documents = pair
        elif text != "True":
            keep = print_expr(recipe.keep)
            return {"refused": f"its mask ({keep}) is none that a library asks for"}
    others = [name for name in given if name not in (documents or ())]
    if others:
        return {"refused": f"it needs {', '.join(others)}, which no library gives"}
    return {
        "causal": causal, "window": window,
        "documents": None if documents is None else list(documents),
        "score": print_expr(recipe.score), "sdpa_refused": _sdpa_refused(recipe, documents),
    }  # fmt: skip


def _sdpa_refused(recipe: Recipe, documents: tuple[str, str] | None) -> str:
    """Why no call of PyTorch's SDPA (or of diffusers) could ask for it; empty where one can."""
    if documents is not None:
        return "it needs document numbers, which SDPA does not give"
    sizes = dict.fromkeys(("D", "Dv"), 64) | {"LOG2E": math.log2(math.e), "LN2": math.log(2)}
    factors = [float(evaluate(recipe.score, {**sizes, "x": x})) / x for x in (1.0, -7.0, 900.0)]
    if all(math.isclose(factor, factors[0], rel_tol=1e-5) for factor in factors):
        return ""
    return f"its score ({print_expr(recipe.score)}) is no multiple of x, all that SDPA asks for"


def _plain_heads(recipe: Recipe) -> bool:
    """Whether query head h reads key/value head h // (Hq // Hkv), as libraries mean it."""
    if not free_names(recipe.kv_head) <= {"h", "Hq", "Hkv"}:
        return False  # a table, or what changes from row to row
    counts = [(hq, hkv) for hq, hkv in head_counts(recipe) if hq % hkv == 0]
    return bool(counts) and all(
        evaluate(recipe.kv_head, {"h": h, "Hq": hq, "Hkv": hkv}) == h // (hq // hkv)
        for hq, hkv in counts
        for h in range(hq)
    )


def _same_document(part: Expr, recipe: Recipe) -> tuple[str, str] | None:
    """The tables of the queries' and the keys' documents, where `part` says that they are equal."""
    if not (isinstance(part, Compare) and part.op == "=="):
        return None
    found: dict[str, str] = {}
    dims = {i.name: i.dims for i in recipe.inputs}
    for side in (part.left, part.right):
        match side:
            case Index(Name(table), (Name("b"), Name("i"))) if dims.get(table) == ("B", "Nq"):
                found["q"] = table
            case Index(Name(table), (Name("b"), Name("j"))) if dims.get(table) == ("B", "Nk"):
                found["k"] = table
    return (found["q"], found["k"]) if len(found) == 2 else None
