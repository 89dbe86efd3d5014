"""The deck: sizes, values and layouts that a kernel is run on.

Sizes off every tile edge, as FlashAttention's own tests have them, and around every integer that
stands in the recipe: a deck that ends before the window does cannot see a wrong window.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.cuir.nodes import Expr, integers_in
from engine.spec.decks.extreme_biases import PATTERNS

FLAT, PEAKED, SHIFTED = "flat", "peaked", "shifted"
LEVEL, EVEN = "level", "even"  # as `engine.spec.decks.logit_levels` has them, which needs torch
LARGEST_CONSTANT = 4096


@dataclass(frozen=True)
class Case:
    """One run. `values`: flat (normal draws), peaked (q times 8), shifted (q times 3, v plus 3),
    level (logits of thousands) or even (all the same): `engine.spec.decks.logit_levels`.

    `turn`: how integers over rows and flags are drawn, see `engine.spec.decks.integer_draws`; 0 as
    they are timed: sorted runs, independent flags. `slots` of a workspace; None: as many as ever.
    """

    B: int
    Hq: int
    Hkv: int
    Nq: int
    Nk: int
    values: str = FLAT
    seed: int = 0
    turn: int = 0
    slots: int | None = None

    @property
    def sizes(self) -> dict[str, int]:
        return {"B": self.B, "Hq": self.Hq, "Hkv": self.Hkv, "Nq": self.Nq, "Nk": self.Nk}

    def __str__(self) -> str:
        shape = f"B{self.B} heads {self.Hq}/{self.Hkv} Nq {self.Nq} Nk {self.Nk}"
        if self.slots is not None:
            shape += f" slots {self.slots}"
        return shape if self.values == FLAT else f"{shape} {self.values}"


_SIZES = (
    (1, 1), (1, 3), (2, 1), (5, 2), (2, 5), (239, 1), (511, 1), (799, 3), (3, 513), (64, 128),
    (113, 203), (113, 128), (128, 113), (108, 256), (307, 256), (384, 256), (640, 128), (127, 129),
    (129, 127), (63, 65), (65, 63), (175, 177), (193, 191), (512, 512), (1023, 1024), (1024, 1023),
    (1, 1111),
)  # fmt: skip
_EMPTY = ((0, 64), (64, 0), (0, 0), (1, 0))
_HEADS = ((1, 1), (4, 4), (6, 2), (5, 1), (12, 4), (2, 2))
_SHORT = ((1, 1), (113, 203), (129, 127), (307, 256), (512, 512), (1, 300))


# Rows of very low and of very high logits, in one tile and from tile to tile; then sums of weights
# as large as a row of that many keys can have.
_LEVELS = (
    Case(1, 2, 1, 20, 150, LEVEL, 8200), Case(2, 2, 2, 150, 150, LEVEL, 8201),
    Case(1, 2, 1, 300, 1000, LEVEL, 8202),
)  # fmt: skip
# Several blocks of rows of more heads than are taken in turn (`past_section`), two to a key head.
_SECTIONS = (
    Case(2, 4, 2, 381, 300, FLAT, 8300, 1), Case(2, 4, 2, 300, 381, FLAT, 8301, 2),
)  # fmt: skip
_LONG_SUM = Case(1, 1, 1, 1, 30_001, EVEN, 8203)


def constants(expressions: Iterable[Expr]) -> tuple[int, ...]:
    """Integers of the recipe that may be a window, a prefix or a block, and that the deck reaches
    past. One of no more than 2 is inside every case."""
    return tuple(c for c in integers_in(expressions) if 2 < c <= LARGEST_CONSTANT)


def beyond(expressions: Iterable[Expr]) -> tuple[int, ...]:
    """The integers that no run reaches past: a verdict names them."""
    return tuple(c for c in integers_in(expressions) if c > LARGEST_CONSTANT)


def around(values: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """(Nq, Nk) just before, at and past each constant, as few rows with many keys and reverse."""
    out: list[tuple[int, int]] = []
    for c in values:
        out += [(c - 1, c - 1), (c, c), (c + 1, c + 1), (70, c + 131), (c + 131, 70)]
        if c <= 1024:
            out += [(c + 133, c + 133)]
    return tuple(dict.fromkeys(out))


def past_section(case: Case, section: int) -> Case:
    """The case with more heads in all than two sections of so many hold, two or more to a key head
    as before."""
    group = case.Hq // case.Hkv
    kv = max(case.Hkv, 2 * section // (case.B * group) + 1)
    return replace(case, Hq=group * kv, Hkv=kv)


def accuracy_deck(expressions: Iterable[Expr], short: bool, section: int = 1) -> tuple[Case, ...]:
    """The cases of the accuracy checks; every size with two kinds of values. `section`: how many
    heads the kernel takes in turn before the next ones."""
    found = constants(expressions)
    if short:
        reach = tuple((min(c + 70, 300), c + 131) for c in found[-2:])
        sizes = (*_SHORT, *reach, (64, 0))
    else:
        sizes = (*_SIZES, *around(found), *_EMPTY)
    cases: list[Case] = []
    for n, (nq, nk) in enumerate(sizes):
        hq, hkv = _HEADS[n % len(_HEADS)]
        if nq * nk > 1 << 21:
            hq, hkv = 2, 1
        base = Case(1 + n % 2, hq, hkv, nq, nk, FLAT, 1000 + n, 2 * n)
        if nq == 0 or nk == 0:
            cases.append(base)
            continue
        other = PEAKED if n % 3 else SHIFTED
        cases += [base, replace(base, values=other, seed=5000 + n, turn=2 * n + 1)]
    many = tuple(past_section(c, section) for c in _SECTIONS)
    return (*cases, *many, *(_LEVELS[:2] if short else (*_LEVELS, _LONG_SUM)))


def probe_deck(expressions: Iterable[Expr], short: bool, section: int = 1) -> tuple[Case, ...]:
    """The cases of the mask probes: few heads, sizes off tile edges and past every constant."""
    found = constants(expressions)
    sizes = [(70, 133), (133, 70), (197, 197)]
    if not short:
        sizes += [(1, 65), (65, 1), (5, 2), (2, 5), (257, 390), (390, 257), (320, 320)]
    for c in found:
        sizes += [(min(c + 3, 260), c + 3), (c + 67, c + 67)] if c <= 1536 else [(130, c + 67)]
        if not short:
            sizes.append((min(c, 260), c))
    sizes = list(dict.fromkeys(sizes))
    heads = ((2, 1), (4, 2), (3, 3))
    many = replace(past_section(_SECTIONS[0], section), seed=9400)
    return (
        *(
            Case(2 if n % 3 == 1 else 1, *heads[n % 3], nq, nk, FLAT, 9000 + n, n)
            for n, (nq, nk) in enumerate(sizes)
        ),
        many,
    )


MOST_TILES = 70  # of keys: more than the lists' kernels have warps for one block of rows
MOST_PAIRS = 1 << 24
SLOTS_TRIED = (None, 1, 0)


def list_deck(tile: int | None, square: bool) -> tuple[Case, ...]:
    """The cases of tile lists, for tiles of `tile` keys: many more tiles than slots, and few slots.

    `square` where a spec wants as many rows as keys, which costs the square.
    """
    if tile is None:
        return ()
    tiles = MOST_TILES if not square else max(2, min(MOST_TILES, math.isqrt(MOST_PAIRS) // tile))
    n_k = tiles * tile + 3
    n_q = n_k if square else 70
    return tuple(
        Case(1, 1, 1, n_q, n_k, FLAT, 9500 + n, n + 1, slots) for n, slots in enumerate(SLOTS_TRIED)
    )


def extremes(square: bool) -> tuple[Case, ...]:
    """A bias at the ends of its type, a pattern each (`engine.spec.decks.extreme_biases`)."""
    rows = 300 if square else 70
    return tuple(Case(1, 2, 1, rows, 300, name, 9700 + n, n) for n, name in enumerate(PATTERNS))


# Blocks of rows and tiles of keys that are no whole number of either.
UNDER_MASK_CASES = (
    Case(2, 2, 1, 333, 451, FLAT, 9800, turn=4), Case(2, 2, 1, 261, 261, FLAT, 9801, turn=6),
)  # fmt: skip
LAYOUT_CASE = Case(2, 4, 2, 150, 210, FLAT, 7000)
FAR_CASE = Case(2, 4, 2, 70, 133, FLAT, 7050)
REPEAT_CASE = Case(2, 8, 2, 700, 900, FLAT, 7100, turn=1)
INDEPENDENCE_CASES = (
    Case(1, 4, 2, 200, 200, FLAT, 7200, turn=2), Case(2, 2, 1, 70, 333, FLAT, 7201, turn=1),
)  # fmt: skip
SANITIZER_CASES = (Case(1, 2, 1, 70, 133, FLAT, 7300), Case(1, 2, 2, 130, 65, FLAT, 7301))


FORM = "BATCHxHEADSxLENGTH, such as 2x32x8192, 1x64/8x8192 (query/key heads) or 16x32/8x1:4096 \
(query:key rows)"
_SHAPE = re.compile(r"(\d+)x(\d+)(?:/(\d+))?x(\d+)(?::(\d+))?")
ROWS = 16384  # batch x length, where the batch is not named


def parse_shape(text: str) -> tuple[int, int, int, int, int]:
    """(B, Hq, Hkv, Nq, Nk). Raises `ValueError` that says how a shape is written."""
    found = _SHAPE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no shape: write {FORM}")
    b, hq, hkv, n_q, n_k = found.groups()
    shape = (int(b), int(hq), int(hkv or hq), int(n_q), int(n_k or n_q))
    if min(shape) < 1 or shape[1] % shape[2]:
        raise ValueError(f"{text!r}: sizes from 1 on, query heads a multiple of key heads")
    return shape


def cases_of(plan: Mapping[str, Any], d: int) -> list[Case]:
    """What a plan asks for: its `shapes`, else its `lengths` at 16,384 rows in all and 32 heads (16
    from D 192 on), as the rivals' own benches have them."""
    shapes: Sequence[str] = plan.get("shapes") or ()
    if shapes:
        return [Case(*shape, seed=12345 + shape[3]) for shape in map(parse_shape, shapes)]
    heads = int(plan.get("heads") or (16 if d >= 192 else 32))
    heads_kv = int(plan.get("heads_kv") or heads)
    return [
        Case(max(1, ROWS // n), heads, heads_kv, n, n, seed=12345 + n)
        for n in map(int, plan["lengths"])
    ]


def label(sizes: Mapping[str, int]) -> str:
    """The name of a timed case: `S 8192 B 2 heads 32 D 128`."""
    d = f"D {sizes['D']}" if sizes["D"] == sizes["Dv"] else f"D {sizes['D']}/{sizes['Dv']}"
    heads = f"{sizes['Hq']}" if sizes["Hq"] == sizes["Hkv"] else f"{sizes['Hq']}/{sizes['Hkv']}"
    rows = (
        f"S {sizes['Nq']}" if sizes["Nq"] == sizes["Nk"] else f"Nq {sizes['Nq']} Nk {sizes['Nk']}"
    )
    return f"{rows} B {sizes['B']} heads {heads} {d}"
