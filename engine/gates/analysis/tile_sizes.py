"""What a kernel takes at a time, read off its own text: rows, keys, and heads in turn."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache

from engine.cuir.nodes import (
    Binary,
    Call,
    Expr,
    Module,
    Name,
    Num,
    Select,
    children,
    stmt_exprs,
    walk,
    walk_expr,
)
from engine.cuir.rewrite import substitute
from engine.cuir.static.calls import callee
from engine.gates.analysis.size_comparisons import (
    expressions_in,
    known_constants,
    resolved,
    sizes_in,
    whole_number,
)
from engine.gates.deck import Tiles

MAX_TILE = 1024
NAMED = 1000  # a tile has a name; a number may be a block of the mask, however often it divides
ROUNDS = 3  # the launcher fills kernels' parameters, kernels those of device functions

Numbers = Mapping[str, Mapping[str, int]]  # by function and parameter


@lru_cache(maxsize=8)
def tiles_of(module: Module) -> Tiles | None:
    """The rows and keys of a tile, by what the lengths are divided by, and the heads of a section;
    None where rows or keys are unknown."""
    rows: Counter[int] = Counter()
    keys: Counter[int] = Counter()
    for path, expr, known, own in expressions_in(module):
        for node in walk_expr(expr):
            match node:
                case Call("ceil_div", (length, tile)) | Binary("//", length, tile):
                    pass
                case _:
                    continue
            whole = resolved(length, own)
            if _counts(whole):
                continue  # tiles, or words of them, are counted, not keys
            size = whole_number(tile, known[str(path[0])])
            read = sizes_in(whole)
            if size is not None and 8 <= size <= MAX_TILE:
                weight = NAMED if isinstance(tile, Name) else 1
                if "Nk" in read:
                    keys[size] += weight
                elif "Nq" in read:
                    rows[size] += weight
    if not rows or not keys:
        return None
    return Tiles(rows.most_common(1)[0][0], keys.most_common(1)[0][0], section_of(module))


def section_of(module: Module) -> int:
    """The most heads whose blocks are taken in turn before the next heads' are; 1 where the work
    order has no such number.

    It is what divides a piece of work beside a size (`work // (section * row_blocks)`) or bounds a
    number of heads (`min(section, args.B * args.Hq - first)`).
    """
    numbers = _parameters(module)
    found = {1}
    for path, expr, known, own in expressions_in(module):
        name = str(path[0])
        values: dict[str, Expr] = {n: Num(v) for n, v in {**known[name], **numbers[name]}.items()}
        for node in walk_expr(expr):
            match node:
                case Binary("//" | "%", _, by) | Call("floor_div" | "floor_mod", (_, by)):
                    found.add(_beside_a_size(substitute(resolved(by, own), values)))
                case Call("min", (one, other)):
                    for bound, heads in ((one, other), (other, one)):
                        whole = substitute(resolved(bound, own), values)
                        if isinstance(whole, Num) and "Hq" in sizes_in(resolved(heads, own)):
                            found.add(int(whole.value))
    return max(found)


def _beside_a_size(divisor: Expr) -> int:
    """The whole number in a product with a size; 1 where there is none."""
    factors = list(_factors(divisor))
    numbers = [f.value for f in factors if isinstance(f, Num) and isinstance(f.value, int)]
    sizes = any(sizes_in(f) for f in factors)
    return math.prod(numbers) if sizes else 1


def _factors(expr: Expr) -> Iterator[Expr]:
    match expr:
        case Binary("*", left, right):
            yield from _factors(left)
            yield from _factors(right)
        case _:
            yield expr


def _parameters(module: Module) -> Numbers:
    """The whole numbers that kernels' and device functions' parameters hold at every call."""
    known = known_constants(module)
    functions = {f.name: f for f in module.functions}
    out: dict[str, dict[str, int]] = {name: {} for name in functions}
    for _ in range(ROUNDS):
        given: dict[tuple[str, str], set[int | None]] = {}
        for path, stmt in walk(module):
            here = {**known[str(path[0])], **out[str(path[0])]}
            for expr in stmt_exprs(stmt):
                for node in walk_expr(expr):
                    called = callee(node)
                    function = functions.get(called.name) if called is not None else None
                    if called is None or function is None:
                        continue
                    for param, actual in zip(function.params, called.args, strict=False):
                        value = whole_number(actual, here)
                        given.setdefault((function.name, param.name), set()).add(value)
        for (owner, name), values in given.items():
            if len(values) == 1 and (value := next(iter(values))) is not None:
                out[owner][name] = value
    return out


def _counts(expr: Expr) -> bool:
    """Whether it is a number of tiles or blocks: a length's quotient, and not that many of what it
    was divided by."""
    match expr:
        case Binary("*", Binary("//", length, by) | Call("floor_div", (length, by)), times) if (
            by == times
        ):
            return _counts(length)
        case Call("ceil_div" | "floor_div", (length, _)) | Binary("//", length, _):
            return bool({"Nq", "Nk"} & sizes_in(length))
        case Select(_, then, other):
            return _counts(then) or _counts(other)
    return any(map(_counts, children(expr)))
