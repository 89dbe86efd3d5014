"""Which kinds of a spec's numbers a kernel made, where, and the first kind of which some lack.

With the case's own inputs hardly two scores, sums or outputs are one number. What an instruction
made counts as of a kind where most of it is among that kind's numbers, and few of the same numbers
moved a little are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from engine.foreign.numbers.expected import MASK, OUT, SCORES, Attention, Kind, kinds
from engine.foreign.numbers.watched import Part, Step
from engine.ptx.syntax import registers

Array = np.ndarray[Any, Any]
_MOST = 0.5  # of what an instruction made
_MOVED = 1.0173  # what would be hit by chance
_SOME = 0.03  # where some instructions of a line may have made it
_SAMPLE = 2000
_ALONE = 400  # numbers of one instruction that are looked at
_FEW = 16  # numbers
_ALIKE = 4e-3  # of numbers' size


@dataclass(frozen=True, slots=True)
class Made:
    """What a kernel made of one kind of number.

    Args:
        form: as `Kind.forms` has it.
        parts: the instructions that did, in the order of the code.
        asked: which of the kind's numbers a wrong output needs; `lacks`: those of them that none
            of the parts made; both in its shape.
        others: what they made besides.
    """

    kind: Kind
    form: str
    parts: tuple[Part, ...]
    asked: Array
    lacks: Array
    others: Array

    @property
    def whole(self) -> bool:
        return not self.lacks.any()


@dataclass(frozen=True, slots=True)
class First:
    """Args:
    right: the kinds of which all numbers were made that wrong outputs need, in order.
    wrong: the first behind them of which some lack; None where no other kind was found.
    found: all kinds of which numbers were found.
    """

    right: tuple[Made, ...]
    wrong: Made | None
    found: frozenset[str] = frozenset()


def first_wrong(
    spec: Attention, steps: Sequence[Step], wrong: Mapping[str, Array] | None = None
) -> First:
    """Args:
    wrong: by output (`o`, `lse`) which of its elements are wrong, in their shape; None: all.
    """
    wrong = {"o": np.ones(spec.o.shape, np.bool_)} if wrong is None else wrong
    rows: Array = np.zeros(spec.o.shape[:3], np.bool_)
    for elements in wrong.values():
        rows = rows | (elements.any(-1) if elements.ndim == 4 else elements)
    found: list[Made] = []
    for kind in kinds(spec):
        asked = kind.needed & (rows[..., None] if kind.needed.ndim == 4 else rows)
        if kind.name == OUT and "o" in wrong:  # others may be off by a half's rounding
            asked = asked & wrong["o"]
        made = _made(kind, steps, asked)
        found += [made] if made is not None else []
        if kind.name == SCORES and made is not None and made.whole:
            found += _masked(spec, kind, steps, rows)
    names = frozenset(m.kind.name for m in found)
    found = [m for m in found if m.asked.any()]
    # A kind that lacks some before one that lacks nothing is not what goes wrong; but of a maximum
    # or a sum what a mask drops may be little.
    last = max((n for n, m in enumerate(found) if m.whole), default=-1)
    last = next((n - 1 for n, m in enumerate(found) if m.kind.name == MASK and not m.whole), last)
    return First(tuple(m for m in found[: last + 1] if m.whole),
                 next((m for m in found[last + 1 :] if not m.whole), None), names)  # fmt: skip


def _made(kind: Kind, steps: Sequence[Step], asked: Array) -> Made | None:
    """The parts that made a kind's numbers in the form in which most were made, and furthest on."""
    found: list[tuple[int, int, Made]] = []  # what it lacks of all that a right kernel has
    for form, values in kind.forms.items():
        table = _Table(values, kind)
        parts = list(table.parts(steps)) if table.numbers.size else []
        if parts:
            lacks, others = table.lacks(parts)
            made = Made(kind, form, tuple(parts), asked, lacks & asked, others)
            found.append((int((lacks & kind.needed).sum()), -parts[0].at.line, made))
        elif kind.axes.endswith("d") and (whole := table.same(steps)) is not None:
            nothing = np.zeros(values.shape, np.bool_)
            made = Made(kind, form, whole.parts, asked, nothing, np.zeros(0))
            found.append((0, -whole.at.line, made))
    return min(found, key=lambda f: (int(f[2].lacks.sum()), *f[:2]))[2] if found else None


def _masked(spec: Attention, kind: Kind, steps: Sequence[Step], rows: Array) -> Iterator[Made]:
    """What selects let through of the scores that they take. Nothing where that may be no mask of
    the spec's: where it differs as well in most rows that come out right, or not in most that are
    wrong."""
    scores: dict[tuple[str, str], tuple[Part, Array]] = {}
    for values in kind.forms.values():
        table = _Table(values, kind)
        made = table.parts(steps) if table.numbers.size else ()
        for part in (p for p in made if p.at.name not in ("max", "min")):
            hit = table.nearest(part.values, kind.near, alone=True)
            scores[part.kernel, part.register] = part, np.where(hit >= 0, table.at[hit], -1)
    chosen = [p for s in steps if s.at.name == "selp" for p in s.parts]
    taken = {(p.kernel, r) for p in chosen for r in registers(p.at.operands[1:])}
    dropped, passed = (np.zeros(spec.keep.size, np.bool_) for _ in range(2))
    parts = []
    for part in (p for p in chosen if (p.kernel, p.register) not in taken):
        for one in registers(part.at.operands[1:]):
            score, pairs = scores.get((part.kernel, one), (None, np.zeros(0)))
            if score is None or not np.array_equal(score.threads, part.threads):
                continue
            fill = ~(np.abs(part.values) < 1e30)
            dropped[pairs[fill & (pairs >= 0)]] = True
            passed[pairs[~fill & (pairs >= 0)]] = True
            parts.append(part)
    if not parts:
        return
    keep = spec.keep.reshape(-1)
    other = np.where(keep, dropped & ~passed, passed & ~dropped).reshape(spec.keep.shape)
    differs: Array = np.asarray(other.any(-1))
    seen: Array = np.asarray((dropped | passed).reshape(other.shape).any(-1))
    right, bad = seen & ~rows, seen & rows
    most = 2 * differs[bad].sum() > bad.sum() and 2 * differs[right].sum() <= right.sum()
    if most or not differs.any():
        asked = np.broadcast_to(rows[..., None], other.shape)
        kind = replace(kind, name=MASK, needed=spec.keep)
        yield Made(kind, "", tuple(parts), asked, other & asked, np.zeros(0))


def _telling(values: Array) -> Array:
    """What may be one of few numbers: 0, 1 and fills say nothing."""
    small = np.abs(values)
    return np.asarray(np.isfinite(values) & (small > 1e-30) & (small < 1e30) & (small != 1))


class _Table:
    """A kind's numbers in one form, rising."""

    def __init__(self, values: Array, kind: Kind) -> None:
        self.shape, self.kind, self.values = values.shape, kind, values.reshape(-1)
        self.at = np.flatnonzero(_telling(self.values))
        self.at = self.at[np.argsort(self.values[self.at], kind="stable")]
        self.numbers = self.values[self.at]
        self.size = float(np.sqrt(np.mean(self.numbers**2))) if self.numbers.size else 0.0

    def nearest(self, values: Array, near: float, alone: bool = False) -> Array:
        """The number of the table's entry that each value is within `near` of; -1: of none, or,
        where it has to be `alone`, of several."""
        right = np.clip(np.searchsorted(self.numbers, values), 0, len(self.numbers) - 1)
        left = np.maximum(right - 1, 0)
        closer = np.abs(self.numbers[left] - values) < np.abs(self.numbers[right] - values)
        at = np.where(closer, left, right)
        with np.errstate(invalid="ignore"):
            good = np.abs(self.numbers[at] - values) <= self.within(values, near)
            if alone:
                low, high = (np.searchsorted(self.numbers, values + by * self.within(values, near))
                             for by in (-1, 1))  # fmt: skip
                good &= high - low == 1
        return np.where(good & _telling(values), at, -1)

    def within(self, values: Array, near: float) -> Array:
        return np.asarray(near * (np.abs(values) + self.kind.floor * self.size))

    def parts(self, steps: Sequence[Step]) -> Iterator[Part]:
        """The parts most of whose numbers are of this kind: all of a step, or some alone."""
        for step in steps:
            share = self.share([self.mine(p) for p in step.parts])
            if share >= _MOST:
                yield from step.parts
            elif share > _SOME and len(step.parts) > 1:
                yield from (p for p in step.parts if self.share([self.mine(p)], _ALONE) >= _MOST)

    def mine(self, part: Part) -> Array:
        return part.last if self.kind.ends else part.values

    def share(self, values: Sequence[Array], most: int = _SAMPLE) -> float:
        """Which part of numbers is in the table; less than `_MOST` where they may be by chance."""
        each = most // len(values) + 1
        sample = np.concatenate([v[:: len(v) // each + 1] for v in values])
        sample = np.unique(sample[_telling(sample)])
        if not len(sample):
            return 0.0
        near = self.kind.near
        share = float((self.nearest(sample, near) >= 0).mean())
        if share < _MOST:
            return share
        if len(sample) < _FEW and (share < 1 or len(self.numbers) > _FEW):
            return _MOST / 2
        moved = float((self.nearest(sample * _MOVED, near) >= 0).mean())
        return share if share - moved >= _MOST - 0.1 else _MOST / 2

    def same(self, steps: Sequence[Step]) -> Step | None:
        """The step whose numbers, rising, are the table's, each as often: of elements that 16 bits
        went into, so that none is one number alone."""
        for step in steps:
            for each in ([p.values for p in step.parts], [p.last for p in step.parts]):
                numbers = np.concatenate(each)
                if len(numbers) == self.values.size and np.isfinite(numbers).all():
                    gap = np.abs(np.sort(numbers) - np.sort(self.values))
                    if np.median(gap) < _ALIKE * self.size and gap.max() < 8 * _ALIKE * self.size:
                        return step
        return None

    def lacks(self, parts: Sequence[Part]) -> tuple[Array, Array]:
        """Which entries no number of the parts is near, in the kind's shape; and the numbers that
        are none."""
        numbers = np.unique(np.concatenate([self.mine(p) for p in parts]))
        numbers = numbers[_telling(numbers)]
        right = np.clip(np.searchsorted(numbers, self.numbers), 0, len(numbers) - 1)
        gap = np.minimum(np.abs(numbers[right] - self.numbers),
                         np.abs(numbers[np.maximum(right - 1, 0)] - self.numbers))  # fmt: skip
        out = np.zeros(len(self.values), np.bool_)
        out[self.at[gap > self.within(self.numbers, self.kind.far)]] = True
        return out.reshape(self.shape), numbers[self.nearest(numbers, self.kind.far) < 0]
