"""The deck: sizes, values and layouts that a kernel is run on.

Sizes off every tile edge, as FlashAttention's own tests have them, and around every integer that
stands in the recipe: a deck that ends before the window does cannot see a wrong window.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from engine.cuir.nodes import Expr, Num, walk_expr

FLAT, PEAKED, SHIFTED = "flat", "peaked", "shifted"
LARGEST_CONSTANT = 4096


@dataclass(frozen=True)
class Case:
    """One run. `values`: flat (normal draws), peaked (q times 8), shifted (q times 3, v plus 3)."""

    B: int
    Hq: int
    Hkv: int
    Nq: int
    Nk: int
    values: str = FLAT
    seed: int = 0

    @property
    def sizes(self) -> dict[str, int]:
        return {"B": self.B, "Hq": self.Hq, "Hkv": self.Hkv, "Nq": self.Nq, "Nk": self.Nk}

    def __str__(self) -> str:
        shape = f"B{self.B} heads {self.Hq}/{self.Hkv} Nq {self.Nq} Nk {self.Nk}"
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


def constants(expressions: Iterable[Expr]) -> tuple[int, ...]:
    """Integers of the recipe that may be a window, a prefix or a block."""
    found = {
        abs(node.value)
        for expr in expressions
        for node in walk_expr(expr)
        if isinstance(node, Num)
        and isinstance(node.value, int)
        and not isinstance(node.value, bool)
    }
    return tuple(sorted(c for c in found if 2 < c <= LARGEST_CONSTANT))


def around(values: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """(Nq, Nk) just before, at and past each constant, as few rows with many keys and reverse."""
    out: list[tuple[int, int]] = []
    for c in values:
        out += [(c - 1, c - 1), (c, c), (c + 1, c + 1), (70, c + 131), (c + 131, 70)]
        if c <= 1024:
            out += [(c + 133, c + 133)]
    return tuple(dict.fromkeys(out))


def accuracy_deck(expressions: Iterable[Expr], short: bool) -> tuple[Case, ...]:
    """The cases of the accuracy checks; every size with two kinds of values."""
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
        base = Case(1 + n % 2, hq, hkv, nq, nk, FLAT, 1000 + n)
        if nq == 0 or nk == 0:
            cases.append(base)
            continue
        other = PEAKED if n % 3 else SHIFTED
        cases += [base, replace(base, values=other, seed=5000 + n)]
    return tuple(cases)


def probe_deck(expressions: Iterable[Expr], short: bool) -> tuple[Case, ...]:
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
    return tuple(
        Case(2 if n % 3 == 1 else 1, *heads[n % 3], nq, nk, FLAT, 9000 + n)
        for n, (nq, nk) in enumerate(sizes)
    )


LAYOUT_CASE = Case(2, 4, 2, 150, 210, FLAT, 7000)
FAR_CASE = Case(2, 4, 2, 70, 133, FLAT, 7050)
REPEAT_CASE = Case(2, 8, 2, 700, 900, FLAT, 7100)
INDEPENDENCE_CASES = (Case(1, 4, 2, 200, 200, FLAT, 7200), Case(2, 2, 1, 70, 333, FLAT, 7201))
SANITIZER_CASES = (Case(1, 2, 1, 70, 133, FLAT, 7300), Case(1, 2, 2, 130, 65, FLAT, 7301))
