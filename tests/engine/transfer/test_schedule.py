"""Interval analysis against counting: every kept key is visited, and full tiles are full."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.cuir.nodes import Bool, Expr, Name, Num, Unary
from engine.cuir.parser import parse_expr
from engine.cuir.scalar import evaluate
from engine.transfer.schedule import KeyRange, Rows, key_ranges, normal, tile_full

ATOMS = (
    "j <= i + c", "j < i + c", "j >= i - c", "j > i - c", "j < c", "j >= c", "i < c", "i >= c",
    "abs(i - j) <= c", "abs(i - j) > c", "floor_div(i, 5) == floor_div(j, 5)",
    "floor_div(j, 4) <= floor_div(i, 4) + c", "i == j", "i != j", "j == c", "j % 3 == 1",
    "min(i, c) >= j", "i - j < 2 * c", "c + j > i",
)  # fmt: skip


@st.composite
def predicates(draw: st.DrawFn, depth: int = 3) -> Expr:
    if depth == 0 or draw(st.booleans()):
        text = draw(st.sampled_from(ATOMS)).replace("c", str(draw(st.integers(0, 9))))
        return parse_expr(text.replace("abs", "abs"))
    kind = draw(st.sampled_from(["and", "or", "not"]))
    left = draw(predicates(depth=depth - 1))
    if kind == "not":
        return Unary("not", left)
    return Bool(kind, left, draw(predicates(depth=depth - 1)))


def holds(expr: Expr, **values: int) -> bool:
    return bool(evaluate(expr, values, "exact"))


def number(expr: Expr, **values: int) -> int:
    return int(evaluate(expr, values, "exact"))


@given(predicates(), st.integers(-3, 12), st.integers(-3, 12))
def test_normal_form_means_the_same(keep: Expr, i: int, j: int) -> None:
    assert holds(normal(keep), i=i, j=j) == holds(keep, i=i, j=j)


@given(predicates(), st.integers(0, 20), st.integers(1, 8), st.integers(0, 24))
def test_every_kept_key_is_in_a_range(keep: Expr, first: int, rows: int, keys: int) -> None:
    ranges = key_ranges(keep, Rows(Num(first), Num(first + rows - 1)), Num(keys))

    def visited(part: KeyRange | None, j: int) -> bool:
        return part is not None and number(part.low) <= j <= number(part.high)

    for i in range(first, first + rows):
        for j in range(keys):
            if holds(keep, i=i, j=j):
                assert visited(ranges.prefix, j) or visited(ranges.rest, j), (i, j)


@given(predicates(), st.integers(0, 20), st.integers(1, 6), st.integers(0, 20), st.integers(1, 6))
def test_full_tiles_are_full(keep: Expr, i0: int, rows: int, j0: int, keys: int) -> None:
    condition = tile_full(keep, Rows(Num(i0), Num(i0 + rows - 1)), Num(j0), Num(j0 + keys - 1))
    if holds(condition):
        assert all(
            holds(keep, i=i, j=j) for i in range(i0, i0 + rows) for j in range(j0, j0 + keys)
        )


def test_ranges_of_common_masks_are_tight() -> None:
    """Visited tiles over tiles with a kept pair is 1.00 for these index predicates."""
    masks = {
        "j <= i + (Nk - Nq)": {}, "j <= i": {}, "j <= i and i - j < 13": {},
        "abs(i - j) <= 7": {}, "j < 20 or j <= i": {}, "True": {},
        "(j <= i and (i - j <= 9 or j < 4)) or (j >= i and (j - i <= 9 or i < 4))": {},
        "floor_div(i, 16) == floor_div(j, 16) and j <= i": {},
    }  # fmt: skip
    tile = 8
    for text in masks:
        keep = parse_expr(text)
        for queries, keys in ((64, 64), (50, 61), (24, 64)):
            seen = held = 0
            for first in range(0, queries, tile):
                last = min(first + tile, queries) - 1
                ranges = key_ranges(keep, Rows(Num(first), Num(last)), Name("Nk"))
                sizes = {"Nq": queries, "Nk": keys}
                tiles: set[int] = set()
                for part in (ranges.prefix, ranges.rest):
                    if part is not None:
                        low, high = number(part.low, **sizes), number(part.high, **sizes)
                        tiles |= set(range(low // tile, high // tile + 1)) if high >= low else set()
                seen += len(tiles)
                held += sum(
                    any(
                        holds(keep, i=i, j=j, **sizes)
                        for i in range(first, last + 1)
                        for j in range(n * tile, min(n * tile + tile, keys))
                    )
                    for n in range((keys + tile - 1) // tile)
                )
            assert seen == held, (text, queries, keys)
