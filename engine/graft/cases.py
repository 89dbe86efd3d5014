"""The sizes that a patched kernel is executed at, so that they show what its recipe asks for.

Each condition of the recipe (a comparison, a select, which argument a min or max takes) has two
sides. They are evaluated over all batches, heads, rows and keys of a case; lengths, heads or
batches are doubled until both are taken.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from engine.cuir.nodes import (
    CONTRARY,
    Bool,
    Call,
    Compare,
    Expr,
    Index,
    Num,
    Select,
    Unary,
    names_in,
    walk_expr,
)
from engine.cuir.printer import print_expr
from engine.errors import InputError
from engine.foreign.cases import LENGTHS, complete
from engine.foreign.launcher import Launcher
from engine.foreign.probe.places import Hook
from engine.foreign.reach import MOST_KEYS
from engine.scalar_algebra.arrays import AXES, kept_places, values_of
from engine.scalar_algebra.evaluate import evaluate
from engine.spec.python.signature import Signature
from engine.spec.recipes.recipe import Recipe

_FAR = 1 << 20  # keys beyond which no side is looked for
_WHOLE = 1024  # rows or keys up to which all are looked at; of more some, and those near numbers
_OTHERS = {"Hq": ("h", 64), "B": ("b", 16)}  # what is doubled for whom, and to how many at most

Sizes = Mapping[str, int]
Array = np.ndarray[Any, Any]
Side = tuple[Expr, bool]  # one side of a condition, and whether it counts on kept pairs alone


def cases_for(recipe: Recipe, launcher: Launcher, sizes: Sequence[Sizes]) -> list[dict[str, int]]:
    """The kernel's own cases, and more where they would not show what the recipe asks for: two
    batches or heads where values depend on them, and what takes the other side of a condition.

    Raises:
        InputError: a side is taken only beyond what is executed here.
    """
    out = [dict(s) for s in sizes]
    smallest = min(out, key=case_size)
    names = names_in(recipe.score, recipe.keep)
    for dim, (asked, _) in _OTHERS.items():
        if asked in names and dim in launcher.sizes and all(s.get(dim, 1) < 2 for s in out):
            out.append(_doubled(smallest, dim))
    allowed = Signature.of(recipe).constraints
    sides = list(_sides(recipe))
    while lacking := sides_not_taken(recipe, launcher, out, sides):
        shown = (c for s in lacking for c in _showing(recipe, launcher, smallest, s))
        found = next((c for c in shown if _allowed(allowed, complete(launcher, c))), None)
        if found is None:
            break
        out.append(found)
    return out


def reaching(hooks: Sequence[Hook], sizes: Sequence[Sizes]) -> list[dict[str, int]]:
    """The kernel's own cases, and for each hook one as long as its probing was: where each loop
    runs that a place of it stands in. What probing saw differ, and no case has so (the lengths,
    query heads from key heads), differs in one more: a mask by the wrong length is wrong there."""
    out = [dict(s) for s in sizes]
    for hook in hooks:
        long = {n: hook.probed[n] for n in LENGTHS if n in hook.probed}
        base = dict(hook.sizes) or out[0]  # another head size may be another kernel
        like = [s for s in out if s.get("D") == base.get("D")]
        if long and not any(_rows(s) >= long["Nq"] and _keys(s) >= long["Nk"] for s in like):
            out.append({n: long.get(n, s) for n, s in base.items()})
    seen = [h.again for h in hooks if h.again]
    least = min(out, key=case_size)
    apart: dict[str, int] = {}
    if any(s["Nq"] != s["Nk"] for s in seen) and all(_rows(s) == _keys(s) for s in out):
        apart |= {"Nq": _rows(least), "Nk": 2 * _keys(least)}
    if any(s["Hq"] != s["Hkv"] for s in seen) and all(_heads(s)[0] == _heads(s)[1] for s in out):
        apart |= {"Hq": 2 * _heads(least)[0], "Hkv": _heads(least)[1]}
    return [*out, {**least, **apart}] if apart else out


def _allowed(constraints: Sequence[Expr], sizes: Sizes) -> bool:
    return all(evaluate(c, sizes) for c in constraints)


def sides_not_taken(
    recipe: Recipe, launcher: Launcher, cases: Sequence[Sizes], sides: Sequence[Side] | None = None
) -> list[Side]:
    """The sides of conditions on sizes and places that no pair of the cases takes."""
    left = list(_sides(recipe)) if sides is None else list(sides)
    left = [s for s in left if _taken(recipe, s, dict.fromkeys(_USED, 2)) is not None]
    for case in cases:
        whole = complete(launcher, case)
        left = [s for s in left if not _taken(recipe, s, whole)]
    return left


def on_data(recipe: Recipe) -> list[str]:
    """Conditions on scores or inputs: which sides a case takes is not looked at."""
    unknown = [s for s, _ in _sides(recipe) if values_of(s, _grid(dict.fromkeys(_USED, 2))) is None]
    return list(dict.fromkeys(print_expr(s) for s in unknown[::2]))


def _showing(
    recipe: Recipe, launcher: Launcher, smallest: Sizes, side: Side
) -> Iterator[dict[str, int]]:
    """The smallest case that takes a side, with one kind of dimension doubled."""
    names = names_in(side[0])
    if names & {"i", "j", "Nq", "Nk"} and set(LENGTHS) & launcher.sizes:
        case = {n: 1 if n in ("B", "Hq", "Hkv") and not names & {"b", "h", "B", "Hq", "Hkv"} else s
                for n, s in smallest.items()}  # fmt: skip
        while _keys(case) * 2 <= _FAR:
            case = {n: s * 2 if n in LENGTHS else s for n, s in case.items()}
            if _taken(recipe, side, complete(launcher, case)):
                if _keys(case) > MOST_KEYS:
                    raise InputError(
                        f"no case of at most {MOST_KEYS} keys shows what the spec does where "
                        f"{print_expr(side[0])}",
                        fix="judge it with a smaller number, such as --set window=64",
                    )
                yield case
                return
    for dim, (asked, most) in _OTHERS.items():
        case = dict(smallest)
        while names & {asked, dim} and dim in launcher.sizes and case.get(dim, 1) < most:
            case = _doubled(case, dim)
            if _taken(recipe, side, complete(launcher, case)):
                yield case
                return


def _doubled(case: Sizes, dim: str) -> dict[str, int]:
    both = (dim, "Hkv") if dim == "Hq" and "Hkv" in case else (dim,)
    return {**case, **{n: case.get(n, 1) * 2 for n in both}}


def _sides(recipe: Recipe) -> Iterator[Side]:
    """Both sides of each condition, one after the other."""
    seen: set[Expr] = set()
    whole = recipe.keep  # what parts of it ask for may need more keys together than each alone
    if isinstance(whole, Bool) and values_of(whole, _grid(dict.fromkeys(_USED, 2))) is not None:
        seen.add(whole)
        yield whole, False
        yield _contrary(whole), False
    for part, on_kept in ((recipe.keep, False), (recipe.score, True)):
        for e in walk_expr(part):
            conditions: list[Expr]
            match e:
                case Compare():
                    conditions = [e]
                case Select(cond=Bool() as cond):
                    conditions = [cond]
                case Call("min" | "max", args):
                    conditions = [Compare("<", a, b) for a, b in itertools.pairwise(args)]
                case _:
                    continue
            for condition in conditions:
                if condition not in seen:
                    seen.add(condition)
                    yield condition, on_kept
                    yield _contrary(condition), on_kept


def _contrary(condition: Expr) -> Expr:
    if isinstance(condition, Compare):
        return Compare(CONTRARY[condition.op], condition.left, condition.right)
    return Unary("not", condition)


def _taken(recipe: Recipe, side: Side, sizes: Sizes) -> bool | None:
    """Whether a pair takes the side; None where that depends on data."""
    at = _grid(sizes, _numbers(recipe))
    value = values_of(side[0], at)
    if value is None:
        return None
    kept = kept_places(recipe.keep, at) if side[1] else True
    return bool(np.logical_and(value, kept).any())


_USED = ("B", "Hq", "Hkv", "Nq", "Nk", "D", "Dv")


def _grid(sizes: Sizes, near: Sequence[int] = ()) -> dict[str, Any]:
    """Sizes, and b, h, i, j along four axes."""
    out: dict[str, Any] = dict(sizes)
    for axis, (name, dim) in enumerate(zip(AXES, ("B", "Hq", "Nq", "Nk"), strict=True)):
        shape = [1] * 4
        shape[axis] = -1
        out[name] = _points(sizes[dim], near).reshape(shape)
    return out


def _points(count: int, near: Sequence[int]) -> Array:
    if count <= _WHOLE:
        return np.arange(count, dtype=np.int64)
    first = np.linspace(0, count - 1, 17).astype(np.int64)
    away = np.array([w for n in (0, *near) for c in (-n, n) for w in (c - 1, c, c + 1)])
    points = np.unique(first[:, None] + away)
    return np.asarray(points[(points >= 0) & (points < count)])


def _numbers(recipe: Recipe) -> list[int]:
    found = {int(abs(e.value)) for part in (recipe.score, recipe.keep) for e in walk_expr(part)
             if isinstance(e, Num) and abs(e.value) < _FAR}  # fmt: skip
    return sorted(found)[:12]


def empty_rows(recipe: Recipe, sizes: Sizes) -> bool:
    """Whether a row of a case may keep no key: some row keeps none, as far as no data says it, or
    data says it."""
    if any(isinstance(e, Index) for e in walk_expr(recipe.keep)):
        return True
    kept = np.asarray(kept_places(recipe.keep, _grid(sizes, _numbers(recipe))))
    shape = np.broadcast_shapes(kept.shape, (1, 1, 1, 1))
    return not bool(np.broadcast_to(kept, shape).any(-1).all())


def _keys(sizes: Sizes) -> int:
    return sizes.get("Nk", sizes.get("N", sizes.get("Nq", 1)))


def _rows(sizes: Sizes) -> int:
    return sizes.get("Nq", sizes.get("N", 1))


def _heads(sizes: Sizes) -> tuple[int, int]:
    hq = sizes.get("Hq", 1)
    return hq, sizes.get("Hkv", hq)


def case_size(sizes: Sizes) -> int:
    """How many scores a case has."""
    return _rows(sizes) * _keys(sizes) * sizes.get("B", 1) * sizes.get("Hq", 1)
