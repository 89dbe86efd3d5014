"""Whole numbers that were seen at a place, as a C++ expression in what else was seen there.

An expression is a sum of terms: what is in scope, with a whole factor; digits of the thread's
number; and a function of the element's number `@`. Numbers of several runs are explained together,
so that what is a size in one run is not taken for a constant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from engine.foreign.probe.places import ELEMENT

Array = np.ndarray[Any, Any]
_SAMPLES = 500
_WEIGHTS = np.random.default_rng(0).integers(-(2**63), 2**63, _SAMPLES, np.int64)
_MOST_BITS = 10  # of a thread's number
_SHORT = 4  # terms of a sum that nothing shorter is looked for, those with a factor twice


@dataclass(frozen=True, slots=True)
class Column:
    """Something that may be a term: its text, its value at each visit, and how glad one is of it
    (0 best)."""

    text: str
    values: Array
    cost: int = 0
    bit: int = -1  # of a thread's number: which one,
    of: int = 0  # and of how many


@dataclass(frozen=True, slots=True)
class Sum:
    """What was found."""

    terms: tuple[tuple[int, Column], ...]
    constant: int
    element: Mapping[int, int]  # what an element adds

    @property
    def awkward(self) -> tuple[int, int]:
        """How unlike what a person writes it is."""
        odd = sum(abs(w) != 1 for w, c in self.terms if c.bit < 0)
        return odd + len(self.terms), sum(len(c.text) for _, c in self.terms)


def by_element(target: Array, valid: Array) -> tuple[Array, dict[int, int]] | None:
    """Splits numbers into one of the visit and one of the element.

    Args:
        target: [visits, elements]; `valid`: which of them are there.

    Returns:
        [visits] and what each element adds; None where that is not the same in all visits.
    """
    count = target.shape[1]
    adds = {0: 0}
    todo = [0]
    while todo:  # elements that stand beside known ones in some visit
        known = todo.pop()
        for e in range(count):
            if e in adds:
                continue
            both = valid[:, e] & valid[:, known]
            if both.any():
                k = int(both.argmax())
                adds[e] = adds[known] + int(target[k, e] - target[k, known])
                todo.append(e)
    if len(adds) < count:
        return None
    own = target - np.array([adds[e] for e in range(count)])
    first = valid.argmax(1)
    base = own[np.arange(len(own)), first]
    if (valid & (own != base[:, None])).any():
        return None
    return base, adds


def solve(base: Array, columns: Sequence[Column]) -> Sum | None:
    """The fewest and gladdest terms whose sum is `base` at every visit; None where none is."""
    rows = np.random.default_rng(0).permutation(len(base))[:_SAMPLES]
    varied = [c for c in columns if np.ptp(c.values)]
    few = [replace(c, values=c.values[rows]) for c in varied]
    found: list[Sum] = []
    plain = _plain(base[rows], few)
    if plain is not None:
        found.append(plain)
    if plain is None or len(plain.terms) > 2:
        # A thread's number beside its digits, or numbers that have nothing to do with it, may span
        # it with fractions; and what the source makes of a thread's number may be a longer way to
        # say it than digits are.
        whole_of = {c.text for c in few if c.bit >= 0}
        digits = [c for c in few if c.bit >= 0 or c.text not in whole_of]
        apart = [c for c in digits if c.bit >= 0 or not _of_digits(c, digits)]
        tiers = (few, digits, apart, [c for c in digits if c.cost == 2 or c.bit >= 0])
        for tier in tiers:
            other = _eliminate(base[rows], tier)
            if other is not None:
                found.append(other)
                if other.awkward[0] <= _SHORT:
                    break
    whole = {id(f): c for f, c in zip(few, varied, strict=True)}
    for one in sorted(found, key=lambda s: s.awkward):
        terms = tuple((w, whole[id(c)]) for w, c in one.terms)
        total = sum((w * c.values for w, c in terms), np.zeros(len(base))) + one.constant
        if np.array_equal(total, base):
            return replace(one, terms=terms)
    return None


def _of_digits(column: Column, columns: Sequence[Column]) -> bool:
    """Whether a thread's number says what a column is."""
    digits = [c.values for c in columns if c.bit >= 0]
    if not digits:
        return False
    thread = np.unique(np.stack(digits, axis=1), axis=0, return_inverse=True)[1].reshape(-1)
    both = np.unique(np.stack([thread, column.values], axis=1), axis=0)
    return len(both) == int(thread.max()) + 1


def _plain(base: Array, columns: Sequence[Column]) -> Sum | None:
    """A sum of up to three columns as they are."""
    usable = [c for c in columns if c.bit < 0]
    shapes: dict[int, Column] = {}
    for c in usable:  # of those that are the same, the gladdest
        key = _shape(c.values)
        if key not in shapes or _rank(c) < _rank(shapes[key]):
            shapes[key] = c
    keys = np.array(list(shapes), np.int64)

    def done(*terms: Column) -> Sum:
        rest = base - sum((c.values for c in terms), np.zeros(1))
        return Sum(tuple((1, c) for c in terms), int(rest[0]), {0: 0})

    if not np.ptp(base):
        return done()
    whole = _shape(base)
    if one := shapes.get(whole):
        return done(one)

    def pairs(rest: Array, among: Array) -> list[tuple[int, int]]:
        """Shapes of `among` with the one that each lacks to the rest, where that is there."""
        lacking = rest - among
        there = np.isin(lacking, keys)
        return list(zip(among[there].tolist(), lacking[there].tolist(), strict=True))

    goal = np.array([whole])
    if two := [(shapes[a], shapes[b]) for a, b in pairs(goal, keys)]:
        return done(*min(two, key=lambda p: (_rank(p[0]), _rank(p[1]))))
    three = [
        (shapes[a], shapes[b], shapes[c])
        for k, a in enumerate(shapes)
        for b, c in pairs(goal - keys[k : k + 1], keys[k + 1 :])
    ]
    return done(*min(three, key=lambda t: sum(map(_rank, t)))) if three else None


def _rank(column: Column) -> int:
    return 100 * column.cost + len(column.text)


def _shape(values: Array) -> int:
    """The same for numbers that differ by a constant, others with a chance of 2^-64; of a sum the
    sum of the terms' shapes, modulo 2^64: what a sum lacks is looked up, not put together."""
    moved = (values - values[0]).astype(np.int64)
    return int(moved @ _WEIGHTS[: len(moved)])


def _eliminate(base: Array, columns: list[Column]) -> Sum | None:
    """Drops columns, the least glad first, as long as the others explain the numbers."""
    values = base.astype(np.float64)

    def fits(some: Sequence[Column]) -> Array | None:
        matrix = np.stack([*(c.values for c in some), np.ones(len(base))], axis=1)
        scale = np.abs(matrix).max(0)
        answer, *_ = np.linalg.lstsq(matrix / scale, values, rcond=1e-12)
        if np.abs(matrix / scale @ answer - values).max() > 1e-4:
            return None
        return np.asarray(answer / scale)

    ranked = sorted(columns, key=lambda c: (c.cost, len(c.text.split())))
    needed: list[Column] = []
    while (answer := fits(needed)) is None:
        last = _enough(values, needed, ranked)
        if last is None:
            return None
        needed.append(ranked[last])
        ranked = ranked[:last]
    if np.abs(answer - np.rint(answer)).max() > 1e-3:
        return None
    whole = [int(w) for w in np.rint(answer)]
    places = {id(c): k for k, c in enumerate(columns)}
    terms = sorted(zip(whole, needed, strict=False), key=lambda t: places[id(t[1])])
    return Sum(tuple(terms), whole[-1], {0: 0})


def _enough(base: Array, needed: Sequence[Column], columns: Sequence[Column]) -> int | None:
    """The first column with which those up to it, and the needed ones, span the numbers; None where
    all do not. Each in turn is made orthogonal to those before."""
    basis = np.zeros((len(needed) + len(columns) + 1, len(base)))
    rest, count = base.copy(), 0
    ones = np.ones(len(base))
    for number, values in enumerate([ones, *(c.values for c in (*needed, *columns))]):
        new = values / (np.linalg.norm(values) or 1.0)
        for _ in range(2):
            new = new - basis[:count].T @ (basis[:count] @ new)
        size = np.linalg.norm(new)
        if size > 1e-7:
            basis[count] = new / size
            rest -= basis[count] * (basis[count] @ rest)
            count += 1
        if number > len(needed) and np.abs(rest).max() <= 1e-4:
            return number - len(needed) - 1
    return None


def thread_bits(name: str, values: Array) -> list[Column]:
    """A thread's number by its bits."""
    whole = values.astype(np.int64)
    count = int(whole.max(initial=0)).bit_length()
    return [Column(name, (whole >> k & 1).astype(np.float64), 4, k, count)
            for k in range(min(count, _MOST_BITS))]  # fmt: skip


def spelled(found: Sum, names: Mapping[str, str]) -> str:
    """The sum as C++.

    Args:
        names: what the factor of a term is called, by the term.
    """
    parts: list[str] = []
    bits: dict[str, dict[int, tuple[int, Column]]] = {}
    for weight, column in found.terms:
        if column.bit >= 0:
            bits.setdefault(column.text, {})[column.bit] = (weight, column)
        elif weight:
            parts.append(_times(weight, column.text, names))
    for name, own in bits.items():
        top = next(iter(own.values()))[1].of - 1
        parts += _digits(name, {k: w for k, (w, _) in own.items()}, top)
    parts += _element([found.element[e] for e in sorted(found.element)])
    if found.constant or not parts:
        parts.append(str(found.constant))
    return " + ".join(parts).replace("+ -", "- ")


def _times(weight: int, text: str, names: Mapping[str, str]) -> str:
    if weight == 1:
        return text
    plain = text if text.replace("_", "").replace(".", "").isalnum() else f"({text})"
    if weight == -1:
        return f"-{plain}"
    return f"{plain} * {names.get(text, weight)}"


def _digits(name: str, weights: Mapping[int, int], top: int) -> list[str]:
    """Bits of a number, those beside each other whose weights double taken together."""
    out: list[str] = []
    todo = sorted(k for k, w in weights.items() if w)
    while todo:
        low = high = todo.pop(0)
        while todo and todo[0] == high + 1 and weights[high + 1] == 2 * weights[high]:
            high = todo.pop(0)
        words = name if not low else f"{name} / {1 << low}"
        if high < top:
            words = f"{words} % {1 << high - low + 1}"
        out.append(words if weights[low] == 1 else f"{words} * {weights[low]}")
    return out


def _element(table: list[int]) -> list[str]:
    """A function of the element's number: digits in mixed radix, each with a weight."""
    out: list[str] = []
    divisor = 1
    table = [t - table[0] for t in table] if table else []
    while len(table) > 1:
        step = table[1]
        run = 1
        while run < len(table) and table[run] == run * step:
            run += 1
        while len(table) % run:
            run -= 1
        whole = [table[k] for k in range(0, len(table), run)]
        if run == 1 or any(table[k] != whole[k // run] + k % run * step for k in range(len(table))):
            return [f"(const int[]){{{', '.join(map(str, table))}}}[{ELEMENT} / {divisor}]"]
        words = ELEMENT if divisor == 1 else f"{ELEMENT} / {divisor}"
        if run < len(table):
            words = f"{words} % {run}"
        if step:
            out.append(words if step == 1 else f"{words} * {step}")
        divisor *= run
        table = whole
    return out
