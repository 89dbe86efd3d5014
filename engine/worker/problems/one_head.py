"""One (batch, head) in float64, where the whole does not fit.

By the recipe in bands of rows, else by the spec's function on a part of its inputs.

A function may be given one head of its inputs where its heads do not look at each other, and one
batch likewise. Whether that is so is tried on a small case, element by element.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from engine.cuir.nodes import Expr
from engine.cuir.scalar import evaluate
from engine.errors import SpecError
from engine.spec.recipes.recipe import Recipe
from engine.spec.reference.oracle import canonical_layout, of_row, weighed, widened
from engine.spec.reference.sums import evaluated
from engine.worker.problems.problem_sizes import Case
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


SMALL = (Case(2, 4, 2, 37, 43, seed=7500), Case(2, 4, 2, 40, 40), Case(2, 4, 4, 40, 40))
AXES = (("B", "heads"), ("heads",), ("B",))
"""What may be cut, the most first."""
SAME = 1e-10


def cut(
    run: SpecRun,
    inputs: Mapping[str, Tensor],
    sizes: Mapping[str, int],
    b: int,
    h: int,
    axes: tuple[str, ...],
) -> tuple[dict[str, Tensor], int, int]:
    """The inputs of batch `b` and of `h`'s group of heads, and where (b, h) is in their output."""
    group = max(1, sizes["Hq"] // max(1, sizes["Hkv"]))
    kv = h // group
    ranges: dict[str, tuple[int, int]] = {}
    if "B" in axes:
        ranges["B"] = (b, 1)
    if "heads" in axes:
        ranges |= {"Hq": (kv * group, group), "Hkv": (kv, 1)}
    out: dict[str, Tensor] = {}
    for item in run.signature.inputs:
        value = inputs[item.name]
        for place, dim in enumerate(item.dims):
            if dim in ranges:
                value = value.narrow(place, *ranges[dim])
        out[item.name] = value
    return out, 0 if "B" in axes else b, h - kv * group if "heads" in axes else h


def separable(run: SpecRun, d: int, dv: int) -> tuple[str, ...]:
    """What of a call's inputs may be cut off from the rest: batches, groups of heads, both."""
    for case in SMALL:
        sizes = run.sizes(case, d, dv)
        if not run.fits(sizes):
            continue
        inputs = run.make_inputs(case, sizes, torch.float32)
        try:
            whole = run.exact(inputs)
        except SpecError:
            continue
        for axes in AXES:
            if all(
                _same(run, inputs, sizes, whole, b, h, axes)
                for b in range(case.B)
                for h in range(case.Hq)
            ):
                return axes
        return ()
    return ()


def _same(
    run: SpecRun, inputs: Mapping[str, Tensor], sizes: Mapping[str, int], whole: Tensor,
    b: int, h: int, axes: tuple[str, ...],
) -> bool:  # fmt: skip
    part, at_b, at_h = cut(run, inputs, sizes, b, h, axes)
    try:
        found = run.exact(part)[at_b, at_h]
    except (SpecError, IndexError):
        return False
    want = whole[b, h]
    if found.shape != want.shape:
        return False
    return bool(torch.allclose(found, want, rtol=SAME, atol=SAME, equal_nan=True))


def one_head_by_spec(
    run: SpecRun, inputs: Mapping[str, Tensor], sizes: Mapping[str, int], b: int, h: int,
    axes: tuple[str, ...],
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """O [Nq, Dv], its natural size [Nq, Dv] and which rows have a key [Nq], as `heads.one_head`.

    `axes` are what `separable` gave. Raises `SpecError`; torch.OutOfMemoryError where even the part
    does not fit.
    """
    part, at_b, at_h = cut(run, inputs, sizes, b, h, axes)
    exact = run.exact(part)
    size = run.magnitude(part, exact)[at_b, at_h]
    o = exact[at_b, at_h]
    return o.nan_to_num(), size, ~o.isnan().all(-1)
