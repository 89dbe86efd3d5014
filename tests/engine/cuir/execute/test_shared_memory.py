"""Vector clocks against a happens-before graph computed the slow way."""

from dataclasses import replace

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cuir.execute.state.shared_memory import Access, SharedMemory
from engine.cuir.types import SharedType

PARTS, TILES = 3, 3
TILE = SharedType("f16", 2, 8)  # two rows of one granule each

touch = st.tuples(
    st.integers(0, PARTS - 1), st.sampled_from("rw"), st.integers(0, TILES - 1), st.integers(0, 2)
)
barrier = st.sets(st.integers(0, PARTS - 1), min_size=2).map(lambda s: ("barrier", *sorted(s)))
traces = st.lists(st.one_of(touch, touch, barrier), max_size=14)


def rows_of(choice):
    """Rows that an access takes: the first, the second, or both."""
    return [(0, 1), (1, 2), (0, 2)][choice]


def has_race(trace):
    """Some pair of clashing accesses that no barriers order, or a read of what nobody wrote."""
    order = np.eye(len(trace), dtype=bool)
    last = {}
    for now, event in enumerate(trace):
        who = event[1:] if event[0] == "barrier" else event[:1]
        for part in who:
            if part in last:
                order[last[part], now] = True
            last[part] = now
    for middle in range(len(trace)):
        order |= order[:, middle : middle + 1] & order[middle : middle + 1, :]
    touches = [(i, e) for i, e in enumerate(trace) if e[0] != "barrier"]
    written = set()
    for i, (_, kind, tile, rows) in touches:
        cells = {(tile, row) for row in range(*rows_of(rows))}
        if kind == "r" and not cells <= written:
            return True
        if kind == "w":
            written |= cells
        for j, (_, other, tile2, rows2) in touches:
            both = cells & {(tile2, row) for row in range(*rows_of(rows2))}
            if j < i and both and "w" in (kind, other) and not order[j, i]:
                return True
    return False


def run(trace):
    found = []
    memory = SharedMemory(
        TILES * TILE.tile_bytes, PARTS, torch.float64, lambda kind, *rest: found.append(kind)
    )
    clocks = [np.zeros(PARTS, np.int32) for _ in range(PARTS)]
    for part, clock in enumerate(clocks):
        clock[part] = 1
    for step, event in enumerate(trace):
        if event[0] == "barrier":
            known = np.maximum.reduce([clocks[p] for p in event[1:]])
            for part in event[1:]:
                clocks[part][part] += 1
                np.maximum(clocks[part], known, out=clocks[part])
            continue
        part, kind, tile, rows = event
        region = memory.region(TILE, tile * TILE.tile_bytes, rows=rows_of(rows))
        who = Access(part, int(clocks[part][part]), part, clocks[part], step, step, 0)
        if kind == "r":
            memory.read(region, who, "f16", through_async=False)
        else:
            memory.write(region, who, "f16", fenced=True)
    return found


@settings(max_examples=400, deadline=None)
@given(traces)
def test_a_finding_exactly_where_an_access_is_unordered(trace):
    assert bool(run(trace)) == has_race(trace)


def test_rows_dealt_in_turn_are_the_tile():
    memory = SharedMemory(1024, 1, torch.float64, lambda *rest: None)
    type = SharedType("bf16", 8, 16)
    picked = [memory.region(type, 64, every=(p, 2)).of(np.arange(64)).ravel() for p in (0, 1)]
    whole = memory.region(type, 64).of(np.arange(64)).ravel()
    assert sorted(np.concatenate(picked)) == list(whole)
    assert not set(picked[0]) & set(picked[1])


def test_tiles_of_four_bytes_take_every_other_slot():
    memory = SharedMemory(256, 1, torch.float64, lambda *rest: None)
    wide = memory.tile(SharedType("f32", 2, 4), 32)
    wide.copy_(torch.arange(8.0).reshape(2, 4))
    assert memory.data[16:32:2].tolist() == list(range(8))


def test_one_write_of_a_tile_vouches_for_it_until_another_one_comes():
    found = []
    memory = SharedMemory(128, 2, torch.float64, lambda kind, *rest: found.append(kind))
    clock = np.array([1, 0], np.int32)

    def access(step):
        return Access(0, 1, 0, clock, step, step, 0)

    whole = memory.region(TILE, 0)
    memory.write(whole, access(1), "f16", fenced=True)
    memory.read(memory.region(TILE, 0, rows=(1, 2)), access(2), "f16", through_async=True)
    assert not found
    other = memory.region(replace(TILE, dtype="bf16"), 0)
    memory.read(other, access(3), "bf16", through_async=True)
    assert found == ["punned_read"]
    memory.write(memory.region(TILE, 0, rows=(1, 2)), access(4), "f16", fenced=False)
    memory.read(whole, access(5), "f16", through_async=True)
    assert found == ["punned_read", "missing_proxy_fence"]
    memory.fence(0, (0,), 1)
    memory.read(whole, access(6), "f16", through_async=True)
    unknown = Access(1, 1, 1, np.array([0, 1], np.int32), 7, 7, 0)
    memory.read(memory.region(TILE, 0, rows=(0, 1)), unknown, "f16", through_async=False)
    assert found == ["punned_read", "missing_proxy_fence", "early_read"]
