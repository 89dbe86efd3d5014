"""Numbers seen at a place, explained by what else was seen there."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine.foreign.probe.fit import (
    Column,
    Sum,
    _shape,
    by_element,
    solve,
    spelled,
    thread_bits,
)


def evaluated(text: str, **names: int) -> int:
    text = text.replace("@", "e").replace("/", "//")
    return int(eval(text.replace("(const int[]){", "(").replace("}[", ",)["),
                    {"int": int}, names))  # fmt: skip


digits = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 40)), min_size=1, max_size=3)


@given(digits)
def test_an_elements_share_is_spelled_in_digits(radix: list[tuple[int, int]]) -> None:
    table = [0]
    for count, weight in radix:
        table = [low + k * weight for k in range(count) for low in table]
    text = spelled(Sum((), 5, dict(enumerate(table))), {})
    assert [evaluated(text, e=e) for e in range(len(table))] == [5 + x for x in table]


def test_any_table_is_spelled() -> None:
    table = {0: 0, 1: 5, 2: 1, 3: 3}
    text = spelled(Sum((), 0, table), {})
    assert [evaluated(text, e=e) for e in range(4)] == [0, 5, 1, 3]


@given(st.integers(1, 64), st.integers(0, 9))
def test_bits_of_a_thread_become_quotients(weight: int, start: int) -> None:
    thread = np.arange(128)
    wanted = thread // 4 % 8 * weight + thread // 32 * 200 + start
    found = solve(wanted, thread_bits("t", thread))
    assert found is not None
    assert [evaluated(spelled(found, {}), t=t) for t in range(128)] == wanted.tolist()


def test_what_the_source_spells_comes_first() -> None:
    tile, lane = (x.reshape(-1) for x in np.meshgrid(np.arange(5), np.arange(32)))
    columns = [
        Column("tile", tile * 1.0), Column("lane", lane * 1.0), Column("kKeys", tile * 0.0 + 32),
        Column("tile * kKeys", tile * 32.0, 3), Column("int(threadIdx.x)", lane * 1.0, 2),
    ]  # fmt: skip
    found = solve(tile * 32 + lane, columns)
    assert found is not None
    assert spelled(found, {}) == "lane + tile * kKeys"


def test_three_of_very_many_are_found() -> None:
    """A kernel with its arguments in structs has a thousand numbers in scope."""
    values = np.random.default_rng(0).integers(0, 1 << 20, (1000, 64)).astype(float)
    columns = [Column(f"v{k}", row) for k, row in enumerate(values)]
    found = solve((values[[3, 500, 998]].sum(0) - 7).astype(np.int64), columns)
    assert found is not None and spelled(found, {}) == "v3 + v500 + v998 - 7"


many = st.lists(st.integers(-(1 << 40), 1 << 40), min_size=4, max_size=4)


@given(many, many, st.integers(-9, 9))
def test_the_shape_of_a_sum_is_the_sum_of_the_shapes(a: list[int], b: list[int], far: int) -> None:
    one, other = np.array(a), np.array(b)
    assert (_shape(one + other + far) - _shape(one) - _shape(other)) % 2**64 == 0


def test_a_factor_has_the_name_that_its_term_says() -> None:
    tile = np.arange(7)
    found = solve(tile * 48 + 3, [Column("tile", tile * 1.0)])
    assert found is not None
    assert spelled(found, {"tile": "kKeys"}) == "tile * kKeys + 3"
    assert spelled(found, {"other": "kKeys"}) == "tile * 48 + 3"


def test_what_nothing_explains() -> None:
    n = np.arange(50)
    assert solve(n * n, [Column("n", n * 1.0)]) is None


def test_elements_that_keep_no_distance() -> None:
    target = np.array([[0, 1], [4, 6]])
    assert by_element(target, np.ones((2, 2), np.bool_)) is None
    found = by_element(np.array([[0, 1], [4, 99]]), np.array([[True, True], [True, False]]))
    assert found is not None
    assert found[0].tolist() == [0, 4]
    assert found[1] == {0: 0, 1: 1}


def test_numbers_that_span_a_coordinate_with_fractions_are_left_out() -> None:
    thread = np.arange(128, dtype=np.float64)
    lane = thread.astype(np.int64) % 32
    base = (lane // 4 + thread.astype(np.int64) // 32 * 16).astype(np.float64)
    draw = np.random.default_rng(0)
    # Numbers of each lane that are whole, and of which no whole sum is the lane's row.
    junk = [Column(f"junk + {n}", draw.integers(0, 1000, 32)[lane].astype(np.float64), 3)
            for n in range(40)]  # fmt: skip
    found = solve(base, [*junk, Column("int(threadIdx.x)", thread, 2),
                         *thread_bits("int(threadIdx.x)", thread)])  # fmt: skip
    assert found is not None
    assert spelled(found, {}) == "int(threadIdx.x) / 4 % 8 + int(threadIdx.x) / 32 * 16"


def test_digits_are_a_shorter_way_than_what_the_source_makes_of_a_thread() -> None:
    block, thread = (x.reshape(-1) for x in np.meshgrid(np.arange(4.0), np.arange(128.0)))
    columns = [
        Column("n", block), Column("tidx", thread), Column("tidx / 32", thread // 32, 3),
        Column("(tidx % 32) / 4", thread % 32 // 4, 3), Column("int(threadIdx.x)", thread, 2),
        *thread_bits("int(threadIdx.x)", thread),
    ]  # fmt: skip
    found = solve(block * 128 + thread % 4 * 2, columns)
    assert found is not None
    assert spelled(found, {"n": "kKeys"}) == "n * kKeys + int(threadIdx.x) % 4 * 2"
    row = solve(thread % 32 // 4 + thread // 32 * 16, columns)
    assert row is not None
    assert spelled(row, {}) == "(tidx / 32) * 16 + (tidx % 32) / 4"
