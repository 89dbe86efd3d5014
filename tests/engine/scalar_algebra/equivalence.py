"""Whether two expressions mean the same: equal canonical forms, else evaluation at many points.

Points are drawn at random and, for predicates, at every boundary of either one: for each
comparison the key row where it turns, and its neighbours.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from engine.cuir.nodes import Compare, Expr, Name, Num, walk_expr
from engine.scalar_algebra.canonical import canonical, polynomial_or_atom
from engine.scalar_algebra.evaluate import compile_expr
from engine.scalar_algebra.kinds import INT_NAMES, Kinds
from engine.scalar_algebra.polynomial import to_expr
from engine.scalar_algebra.rewrite import TRUE, free_names, load_names

POINTS = 10_000
TOLERANCE = 1e-9
DOCUMENTS = 3  # integer loads take few values, so that they are often equal


@dataclass(frozen=True, slots=True)
class Difference:
    """A point where two expressions differ."""

    point: Mapping[str, Any]
    left: Any
    right: Any


def same(
    left: Expr, right: Expr, kinds: Kinds, where: Expr = TRUE, points: int = POINTS, seed: int = 0
) -> bool:
    """Whether `left` and `right` are equal wherever `where` holds."""
    if canonical(left, kinds) == canonical(right, kinds):
        return True
    return difference(left, right, kinds, where, points, seed) is None


def difference(
    left: Expr, right: Expr, kinds: Kinds, where: Expr = TRUE, points: int = POINTS, seed: int = 0
) -> Difference | None:
    """A point where `left` and `right` differ and `where` holds, or None when none was found."""
    a, b, given = compile_expr(left), compile_expr(right), compile_expr(where)
    tensors = load_names(left) | load_names(right) | load_names(where)
    free = free_names(left) | free_names(right) | free_names(where)
    reach = _largest((left, right, where))
    turns = [compile_expr(t) for e in (left, right, where) for t in _turning(e, kinds)]
    rng = random.Random(seed)
    tried = 0
    while tried < points:
        env = _environment(rng, free, tensors, kinds, reach)
        for key in _keys(rng, env, turns):
            env["j"] = key
            tried += 1
            if not given(env):
                continue
            one, other = a(env), b(env)
            if not _equal(one, other):
                return Difference({n: env[n] for n in sorted(free) if n in env}, one, other)
    return None


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, float) or isinstance(b, float):
        if math.isnan(a) or math.isnan(b):
            return math.isnan(a) and math.isnan(b)
        return bool(a == b or abs(a - b) <= TOLERANCE * max(1.0, abs(a), abs(b)))
    return bool(a == b)


def _largest(exprs: Iterable[Expr]) -> int:
    numbers = (e.value for root in exprs for e in walk_expr(root) if isinstance(e, Num))
    return max((abs(int(n)) for n in numbers if math.isfinite(n) and abs(n) < 1e6), default=0)


def _environment(
    rng: random.Random, free: frozenset[str], tensors: frozenset[str], kinds: Kinds, reach: int
) -> dict[str, Any]:
    """Random sizes (small, or past every constant), indices within them, and hashed loads."""
    top = rng.choice((4, 40, 2 * reach + 40))
    heads = rng.randint(1, 6)
    env: dict[str, Any] = {"Nq": rng.randint(1, top), "Nk": rng.randint(1, top), "Hkv": heads}
    env |= {"Hq": heads * rng.randint(1, 4), "B": rng.randint(1, 4), "D": rng.randint(1, 128)}
    env |= {"Dv": rng.randint(1, 128), "i": rng.randrange(env["Nq"]), "b": rng.randrange(env["B"])}
    env |= {"h": rng.randrange(env["Hq"]), "x": rng.gauss(0, 20), "s": rng.gauss(0, 5)}
    salt = rng.random()
    for name in tensors:
        env[name] = _hashed(name, salt, kinds.get(name, "float"))
    for name in free - set(env):
        if name != "j":
            env[name] = rng.randint(1, 40) if name in INT_NAMES else rng.gauss(0, 3)
    return env


def _hashed(name: str, salt: float, kind: str) -> Callable[..., Any]:
    def load(*index: int) -> Any:
        value = random.Random(f"{name}{salt}{index}").random()
        if kind == "bool":
            return value < 0.5
        return int(value * DOCUMENTS) if kind == "int" else 6 * value - 3

    return load


def _keys(rng: random.Random, env: dict[str, Any], turns: list[Callable[..., Any]]) -> set[int]:
    last = env["Nk"] - 1
    keys = {0, last, *(rng.randint(0, last) for _ in range(4))}
    for turn in turns:
        at_zero = turn({**env, "j": 0})
        slope = turn({**env, "j": 1}) - at_zero
        if slope and math.isfinite(slope):
            root = math.floor(-at_zero / slope)
            keys |= {k for k in (root - 1, root, root + 1, root + 2) if 0 <= k <= last}
    return keys


def _turning(expr: Expr, kinds: Kinds) -> list[Expr]:
    """Left minus right of every comparison that mentions j."""
    out = []
    for e in walk_expr(expr):
        if isinstance(e, Compare) and Name("j") in set(walk_expr(e)):
            gap = polynomial_or_atom(e.left, kinds) - polynomial_or_atom(e.right, kinds)
            out.append(to_expr(gap, kinds))
    return out
