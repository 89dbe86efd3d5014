"""Which observations hold scores, and how large the tiles are that they stand in."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine.foreign.probe.coverage import Held, Tile, covers, factors, worth
from engine.foreign.probe.tracks import Track

SHAPE = (1, 2, 32, 48)


def holding(look: int, covered: list[bool], factor: float = 1.0) -> Held:
    return Held(look, factor, (0,), np.zeros((1, 1), np.int64), np.array(covered), 1)


@given(st.sampled_from((2, 4, 8, 16)), st.sampled_from((3, 6, 12, 24)))
def test_a_tile_is_what_a_block_has_at_a_time(rows: int, keys: int) -> None:
    """A thread a row, a block `rows` threads; each visit sees `keys` scores."""
    _, heads, n, count = SHAPE
    thread, visit = (x.reshape(-1) for x in np.indices((heads * n, count // keys)))
    pairs = (thread * count + visit * keys)[:, None] + np.arange(keys)
    bits = np.zeros((len(thread), keys), np.uint32)
    track = Track(1, thread, visit, bits, bits == 0, tuple(range(keys)))
    one = Held(0, 1.0, track.words, pairs, np.ones(heads * n * count, np.bool_), 1)
    # The largest score of each row, as LSE is where the others are far below: in no tile.
    row = np.arange(heads * n)
    ends = Track(1, row, 0 * row, bits[: heads * n, :1], bits[: heads * n, :1] == 0, (0,))
    last = Held(1, 1.0, (0,), (row * count + row % n)[:, None], one.covered, 1)
    places, seen = {0: one, 1: last}, {0: track, 1: ends}
    tile = Tile.of(places, seen, SHAPE, lambda t: t.threads // rows)
    assert tile == Tile(rows, keys)
    assert tile.whole % rows == tile.whole % keys == 0


def test_a_set_holds_each_needed_pair_once() -> None:
    first, second = holding(1, [True, True, False]), holding(2, [False, False, True])
    both = holding(3, [False, True, True])
    needed = np.array([True, True, True])
    assert list(covers([first, second, both], needed)) == [(first, second)]


def test_of_places_that_lack_some_one_of_each_kind_is_worth_a_look() -> None:
    whole = [holding(n, [True, True]) for n in (1, 2, 3)]
    parts = [holding(n, [True, False]) for n in (4, 5)]
    found = worth([*parts, *whole], 1.0, np.array([True, True]))
    assert [h.look for h in found] == [1, 2, 4]


def test_a_factor_that_has_the_scale_follows_it() -> None:
    """Of the bare product, and in units of log2(e) alone, nothing changes with the scale."""
    for factor, name in factors(0.25).items():
        other = holding(0, [True], factor).factor_at(0.5, 0.25)
        assert factors(0.5)[other] == name
