"""The recipe at one (batch, head) in float64, in bands of rows: where the whole does not fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from engine.cuir.nodes import Expr
from engine.cuir.scalar import evaluate
from engine.spec.recipes.recipe import Recipe
from engine.spec.reference.oracle import canonical_layout, of_row, weighed, widened
from engine.spec.reference.sums import evaluated
from engine.worker.problems.specrun import SpecRun

BAND = 1 << 25  # pairs at a time


def one_head(
    run: SpecRun, inputs: Mapping[str, Tensor], sizes: Mapping[str, int], b: int, h: int
) -> tuple[Tensor, Tensor, Tensor]:
    """O [Nq, Dv], sum_j |w_ij v_jd| [Nq, Dv] as the output is scaled, and which rows keep a key
    [Nq]."""
    assert run.recipe is not None
    with torch.device(run.device):
        return _one_head(run.recipe, inputs, sizes, b, h)


def _one_head(
    recipe: Recipe, inputs: Mapping[str, Tensor], sizes: Mapping[str, int], b: int, h: int
) -> tuple[Tensor, Tensor, Tensor]:
    env: dict[str, Any] = {**sizes, "b": b, "h": h}
    for item in recipe.extra():
        env[item.name] = inputs[item.name] if item.dims else inputs[item.name].item()
    kv = int(evaluate(recipe.kv_head, dict(env)))
    heads = {"q": h, "k": kv, "v": kv}
    q, k, v = (canonical_layout(recipe, r, inputs)[b, n].double() for r, n in heads.items())
    q = _operand(recipe, "q", inputs, q, env)
    k = _operand(recipe, "k", inputs, k, env | {"h": kv})
    env |= {i.name: inputs[i.name].double() for i in recipe.inputs if i.role in ("q", "k")}
    others = None
    if recipe.other is not None:
        others = _one_head(recipe.alone(other=True), inputs, sizes, b, h)
    band = max(1, BAND // max(k.shape[0], 1))
    parts: list[tuple[Tensor, Tensor, Tensor]] = []
    j = torch.arange(k.shape[0])[None, :]
    for first in range(0, q.shape[0], band):
        rows = q[first : first + band]
        i = torch.arange(first, first + rows.shape[0])[:, None]
        env |= {"i": i, "j": j, "x": rows @ k.T}
        beside = None if others is None else tuple(t[first : first + band] for t in others[:2])
        parts.append(_band(recipe, env, v, beside))
    o, size, live = (torch.cat(p) for p in zip(*parts, strict=True))
    return o, size, live


def _operand(
    recipe: Recipe, role: str, inputs: Mapping[str, Tensor], raw: Tensor, env: dict[str, Any]
) -> Tensor:
    """Rows of q or k at one batch and head as they are multiplied, [rows, D]."""
    made = recipe.q if role == "q" else recipe.k
    if made is None:
        return raw
    name = next(i.name for i in recipe.inputs if i.role == role)
    row = torch.arange(raw.shape[0], device=raw.device)[:, None]
    column = torch.arange(env["D"], device=raw.device)[None, :]
    env = {n: widened(v) if isinstance(v, Tensor) else v for n, v in env.items()}
    at = {name: inputs[name].double(), "i" if role == "q" else "j": row, "dd": column}
    value = torch.as_tensor(evaluated(made, env | at)).double()
    return value.broadcast_to(raw.shape[0], env["D"])


def _band(
    recipe: Recipe, env: dict[str, Any], v: Tensor, other: tuple[Tensor, ...] | None
) -> tuple[Tensor, Tensor, Tensor]:
    """What `one_head` gives of some rows; `other` is O and its size of another attention."""
    keep, _, weights, _ = weighed(recipe, env)
    live = keep.any(-1)
    o, size = weights @ v, weights.abs() @ v.abs()
    names = {**of_row(env), "d": torch.arange(v.shape[1])[None, :]}

    def made(what: Expr, **at: Tensor) -> Tensor:
        return torch.as_tensor(evaluated(what, names | at))

    if recipe.other is not None and other is not None:
        together = recipe.other.value
        o = made(together, o=o, o2=other[0])
        # What is taken away from the one counts as what is added to it.
        ways = [made(together, o=size, o2=sign * other[1]).abs() for sign in (1.0, -1.0)]
        size = torch.maximum(*ways)
    if recipe.changes_output:
        o, size = (made(recipe.output, o=t) for t in (o, size))
        o, size = torch.where(live[:, None], o, 0.0), size.abs()
    return o, size, live
