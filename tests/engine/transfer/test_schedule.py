"""Interval analysis against counting: every kept key is visited, and full tiles are full."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cuir.nodes import Bool, Compare, Expr, Name, Num, Select, Unary
from engine.cuir.parser import parse_expr
from engine.cuir.printer import print_expr
from engine.cuir.scalar import evaluate
from engine.scalar_algebra.canonical import canonical
from engine.scalar_algebra.kinds import Kind
from engine.scalar_algebra.rewrite import map_children, substitute
from engine.transfer.bounds import tile_full
from engine.transfer.logic import factored, normal
from engine.transfer.schedule import KeyRange, Rows, key_ranges, slack

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


def holds(expr: Expr, **values: Any) -> bool:
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


# --- conditions on the head and the batch --------------------------------------------------------

KINDS: dict[str, Kind] = {"kind": "int", "flag": "bool"}
OF_BLOCK = (
    "h % 2 == 1", "h % 2 != 0", "h % 3 != 1", "h == 2", "h != 1", "h >= 2", "b < 1", "b != 0",
    "kind[h] == 1", "kind[h] != 0", "flag[h]", "h * h == 4", "floor_div(h, 2) != b",
)  # fmt: skip
BANDS = ("j <= i", "i - j < 6", "i - j < 17", "j < 9", "j >= i - 30", "j <= i - 12", "i < 20")
HELD = {
    "Nk": 64,
    "kind": torch.tensor([0, 2, 1, 0], dtype=torch.int32),
    "flag": torch.tensor([False, True, True, False]),
}
BLOCKS = [{**HELD, "h": h, "b": b} for h in range(4) for b in range(2)]


@st.composite
def masks(draw: st.DrawFn, atoms: tuple[str, ...] = (*OF_BLOCK, *BANDS), depth: int = 3) -> Expr:
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return parse_expr(draw(st.sampled_from(atoms)))
    kind = draw(st.sampled_from(["and", "or", "not"]))
    left = draw(masks(atoms, depth - 1))
    if kind == "not":
        return Unary("not", left)
    return Bool(kind, left, draw(masks(atoms, depth - 1)))


def tiles(keep: Expr, block: Mapping[str, Any], first: int, tile: int = 4) -> set[int]:
    """The tiles that a block of eight rows visits."""
    ranges = key_ranges(factored(keep), Rows(Num(first), Num(first + 7)), Name("Nk"))
    out: set[int] = set()
    for part in (ranges.prefix, ranges.rest):
        if part is not None:
            low, high = (int(evaluate(e, block, "exact")) for e in (part.low, part.high))
            out |= set(range(low // tile, high // tile + 1)) if high >= low else set()
    return out


@settings(deadline=None)
@given(masks(), st.sampled_from([0, 16, 48]))
def test_a_condition_on_the_block_costs_no_tile(keep: Expr, first: int) -> None:
    """What a head or a batch visits is what it would if its own mask were all that there is."""
    of_block = [parse_expr(t) for t in OF_BLOCK]
    for block in BLOCKS:
        known = substitute(keep, {a: Num(bool(evaluate(a, block, "exact"))) for a in of_block})
        assert tiles(keep, block, first) == tiles(known, block, first), block


@st.composite
def rewritten(draw: st.DrawFn, expr: Expr) -> Expr:
    """The same predicate in another writing."""
    other = map_children(expr, lambda e: draw(rewritten(e)) if _is_predicate(e) else e)
    ways: list[Expr] = [other, Unary("not", Unary("not", other))]
    match other:
        case Bool(op, left, right):
            dual = "or" if op == "and" else "and"
            ways += [
                Bool(op, right, left),
                Unary("not", Bool(dual, Unary("not", left), Unary("not", right))),
                Select(left, right, Num(False)) if op == "and" else Select(left, Num(True), right),
                Select(
                    Unary("not", left),
                    *((Num(False), right) if op == "and" else (right, Num(True))),
                ),
            ]
        case Compare(op, left, right):
            turned = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
            contrary = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
            ways += [
                Compare(turned[op], right, left),
                Unary("not", Compare(contrary[op], left, right)),
                Compare("==", Compare(contrary[op], left, right), Num(False)),
                Compare("!=", other, Num(False)),
            ]
            if left == parse_expr("h % 2") and isinstance(right, Num):
                ways.append(Compare(contrary[op], left, Num(1 - int(right.value))))
    return draw(st.sampled_from(ways))


def _is_predicate(expr: Expr) -> bool:
    return isinstance(expr, Bool | Compare) or (isinstance(expr, Unary) and expr.op == "not")


@settings(deadline=None, max_examples=60)
@given(st.data(), st.sampled_from([0, 16, 48]))
def test_equivalent_writings_visit_the_same_tiles(data: st.DataObject, first: int) -> None:
    keep = data.draw(masks())
    other = data.draw(rewritten(keep))
    one, two = canonical(keep, KINDS), canonical(other, KINDS)
    for block in BLOCKS:
        assert tiles(one, block, first) == tiles(two, block, first), block


@settings(deadline=None)
@given(masks(), st.sampled_from([0, 16, 48]))
def test_where_nothing_is_said_no_tile_is_visited_in_vain(keep: Expr, first: int) -> None:
    keep = canonical(keep, KINDS)
    if slack(factored(keep)):
        return
    for block in BLOCKS:
        for n in tiles(keep, block, first):
            pairs = [(i, j) for i in range(first, first + 8) for j in range(4 * n, 4 * n + 4)]
            assert any(holds(keep, i=i, j=j, **block) for i, j in pairs), (block, n)


@pytest.mark.parametrize(
    ("text", "atoms", "spans"),
    [("j <= i and (i - j < 9 or j % 64 == 0)", ["j % 64 == 0"], False),
     ("j <= i and floor_div(j, 64) != 3", ["floor_div(j, 64) != 3"], False),
     ("i - j == 3 or i - j == 90", [], True), ("j <= i and (i - j < 9 or h % 2 == 1)", [], False),
     ("j <= i and (i - j < 9 or h != 3) and j != 7", [], False),
     ("(h == 1 and j >= i - 5) or (h != 1 and j >= i - 9)", [], False),
     ("(h >= 1 and i - j == 3) or (h >= 2 and i - j == 90)", [], True),
     ("j <= i and i < 20", ["i < 20"], False),
     ("j <= i and not tril[i, j]", ["not tril[i, j]"], False)],
)  # fmt: skip
def test_what_a_range_leaves_open_is_said(text: str, atoms: list[str], spans: bool) -> None:
    found = slack(parse_expr(text))
    assert ([print_expr(a) for a in found.unbounded], found.spans) == (atoms, spans)


def test_every_spelling_of_a_head_has_one_schedule() -> None:
    spellings = (
        "j <= i and (i - j < 6 or h % 2 == 1)", "j <= i and (i - j < 6 or h % 2 != 0)",
        "j <= i and (i - j < 6 or not h % 2 == 0)", "j <= i and (i - j < 6 or h % 2 > 0)",
        "(j <= i) if h % 2 == 1 else (j <= i and i - j < 6)",
        "j <= i and (i - j) * (h % 2 == 0) < 6",
        "not (j > i or (h % 2 == 0 and i - j >= 6))",
    )  # fmt: skip
    assert len({canonical(parse_expr(text), KINDS) for text in spellings}) == 1


def test_a_range_inside_another_is_left_out() -> None:
    rows = Rows(Name("q0"), Name("last"))
    for text in ("j <= i and (i - j < 9 or j % 64 == 0)", "j < 70 or (j >= 9 and j < 20)"):
        assert key_ranges(parse_expr(text), rows, Name("Nk")).rest is None
    two = key_ranges(parse_expr("j < 9 or (j <= i and i - j < 9)"), rows, Name("Nk"))
    assert two.prefix is not None and two.rest is not None


def test_many_heads_of_their_own_lose_no_range() -> None:
    text = " or ".join(f"(h == {h} and j <= i and i - j < {3 * h + 1})" for h in range(40))
    keep = parse_expr(text)
    for h in (0, 1, 39):
        own = parse_expr(f"j <= i and i - j < {3 * h + 1}")
        block = {"h": h, "Nk": 200}
        assert tiles(keep, block, 120) == tiles(own, block, 120)


def test_ranges_of_common_masks_are_tight() -> None:
    """Visited tiles over tiles with a kept pair is 1.00 for these index predicates."""
    common: dict[str, dict[str, int]] = {
        "j <= i + (Nk - Nq)": {}, "j <= i": {}, "j <= i and i - j < 13": {},
        "abs(i - j) <= 7": {}, "j < 20 or j <= i": {}, "True": {},
        "(j <= i and (i - j <= 9 or j < 4)) or (j >= i and (j - i <= 9 or i < 4))": {},
        "floor_div(i, 16) == floor_div(j, 16) and j <= i": {},
        "i - j < 13 and j <= i + (Nk - Nq)": {}, "j > i + 4 and j <= i + (Nk - Nq)": {},
    }  # fmt: skip
    tile = 8
    for text in common:
        keep = parse_expr(text)
        for queries, keys in ((64, 64), (50, 61), (24, 64), (50, 29)):
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
