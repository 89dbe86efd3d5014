"""Exchange within a warp (PTX ISA, "shfl.sync", "vote.sync", "match.sync", "elect.sync")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from engine.ptx.decode import Decoder, Site
from engine.ptx.findings import Finding
from engine.ptx.lanes import WARP, Lanes
from engine.ptx.machine import Outcome, Run
from engine.ptx.registers import undefined
from engine.ptx.syntax import Immediate, Pair

Array = np.ndarray[Any, Any]

_LANE = np.arange(WARP)


def full(values: Array, lanes: Lanes) -> Array:
    """[2, lanes] as [2, warps, 32], where threads that take no part hold 0."""
    if lanes.whole:
        return values.reshape(2, -1, WARP)
    out = np.zeros((2, len(lanes.warps), WARP), values.dtype)
    row = np.searchsorted(lanes.warps, lanes.warp_of)
    out[:, row, lanes.threads % WARP] = values
    return out


def back(values: Array, lanes: Lanes) -> Array:
    """[2, warps, 32] as [2, lanes]."""
    if lanes.whole:
        return values.reshape(2, -1)
    row = np.searchsorted(lanes.warps, lanes.warp_of)
    out: Array = values[:, row, lanes.threads % WARP]
    return out


def members(site: Site, k: int) -> Callable[[Lanes], Outcome | None]:
    """Checks that all threads that the member mask names are here, before `run`, and that it names
    those that are."""
    mask, at, machine = site.fetch(k, "u32"), site.at, site.machine
    everyone = site.operand(k) in (Immediate(-1), Immediate(0xFFFFFFFF))

    def check(lanes: Lanes) -> Outcome | None:
        if everyone and lanes.whole:
            return None
        named = machine.memory.same(mask(lanes), lanes, at, "a member mask")
        left = (named >> (lanes.threads % WARP).astype(np.uint32)) & 1 == 0
        if np.count_nonzero(left):
            k = int(left.argmax())
            words = f"lane {lanes.threads[k] % WARP} comes here, which its mask {named[k]:#x} lacks"
            machine.memory.report("divergent collective", at, words, int(lanes.threads[k]))
        here = np.zeros(len(lanes.warps), np.uint32)
        row = np.searchsorted(lanes.warps, lanes.warp_of)
        np.bitwise_or.at(here, row, np.uint32(1) << (lanes.threads % WARP).astype(np.uint32))
        alive = machine.alive.reshape(-1, WARP)[lanes.warps]
        ended = (~alive << _LANE.astype(np.uint32)).sum(1).astype(np.uint32)
        missing = named & ~(here | ended)[row]
        if np.count_nonzero(missing):
            return machine.converge(lanes, np.isin(row, row[missing != 0]), at)
        return None

    return check


def collective(site: Site, k: int, run: Callable[[Lanes], None]) -> Run:
    """Executes for those who name the same mask together, once all of them are here: a lane takes
    nothing from one that its mask lacks (PTX ISA, "shfl.sync": membermask)."""
    mask, check = site.fetch(k, "u32"), members(site, k)
    fixed = isinstance(site.operand(k), Immediate)

    def execute(lanes: Lanes) -> Outcome | None:
        if (outcome := check(lanes)) is not None:
            return outcome
        if fixed:
            run(lanes)
            return None
        named = mask(lanes)[0]
        for value in named[:1] if (named == named[0]).all() else np.unique(named):
            inner = lanes.where(named == value)
            assert inner is not None
            run(inner)
        return None

    return execute


def _shfl(site: Site) -> Run:
    site.takes("sync", "up", "down", "bfly", "idx")
    mode = site.one("up", "down", "bfly", "idx")
    result = site.operand(0)
    pair = isinstance(result, Pair)
    put = site.registers.store(result.first if isinstance(result, Pair) else result, "b32", site.at)
    put_valid = (
        site.registers.store(result.second, "pred", site.at) if isinstance(result, Pair) else None
    )
    memory = site.machine.memory
    value, source, clamp = site.fetch(1, "b32"), site.fetch(2, "u32"), site.fetch(3, "u32")

    def shuffle(lanes: Lanes) -> None:
        values = full(value(lanes), lanes)
        b = full(source(lanes), lanes).astype(np.int64) & 31
        c = full(clamp(lanes), lanes).astype(np.int64)
        segment, limit = (c >> 8) & 31, c & 31
        most = (_LANE & segment) | (limit & ~segment & 31)
        least = _LANE & segment
        if mode == "up":
            j = _LANE - b
            valid = j >= most
        elif mode == "down":
            j = _LANE + b
            valid = j <= most
        elif mode == "bfly":
            j = _LANE ^ b
            valid = j <= most
        else:
            j = least | (b & ~segment & 31)
            valid = j <= most
        j = np.where(valid, j, _LANE)
        taken = back(np.take_along_axis(values, j, 2), lanes)
        if not lanes.whole:  # of a lane that does not come nothing is known
            here = full(np.ones((2, len(lanes)), np.bool_), lanes)
            there = back(np.take_along_axis(here, j, 2), lanes)
            if not there.all() and memory.unset is None:
                words = "a lane was read that takes no part in the shuffle"
                memory.unset = Finding("undefined value", site.at, words)
            taken = np.where(there, taken, undefined((len(lanes),), taken.dtype))
        put(lanes, taken)
        if put_valid is not None:
            put_valid(lanes, back(np.broadcast_to(valid, values.shape), lanes))

    assert pair or put_valid is None
    return collective(site, 4, shuffle)


def _ballot(held: Array, lanes: Lanes) -> Array:
    """[2, warps] words of 32 bits, a bit for each thread that takes part and holds."""
    bits = full(held, lanes).astype(np.uint64) << _LANE.astype(np.uint64)
    words: Array = bits.sum(2).astype(np.uint32)
    return words


def _everyone(lanes: Lanes) -> Array:
    return _ballot(np.ones((2, len(lanes)), np.bool_), lanes)


def _vote(site: Site) -> Run:
    site.takes("sync", "all", "any", "uni", "ballot")
    mode = site.one("all", "any", "uni", "ballot")
    held, put = site.fetch(1, "pred"), site.store(0, "b32" if mode == "ballot" else "pred")

    def vote(lanes: Lanes) -> None:
        word, every = _ballot(held(lanes), lanes), _everyone(lanes)
        out: Array = word
        if mode == "all":
            out = word == every
        elif mode == "any":
            out = word != 0
        elif mode == "uni":
            out = (word == every) | (word == 0)
        wide = np.repeat(out[..., None], WARP, 2)
        put(lanes, back(wide, lanes))

    return collective(site, 2, vote)


def _activemask(site: Site) -> Run:
    site.takes()
    put = site.store(0, "b32")

    def run(lanes: Lanes) -> None:
        put(lanes, back(np.repeat(_everyone(lanes)[..., None], WARP, 2), lanes))

    return run


def _elect(site: Site) -> Run:
    """The lowest thread that takes part is the leader."""
    site.takes("sync")
    result = site.operand(0)
    if not isinstance(result, Pair):
        raise site.refuse("two results are needed")
    put_lane = site.registers.store(result.first, "b32", site.at)
    put = site.registers.store(result.second, "pred", site.at)

    def elect(lanes: Lanes) -> None:
        row = np.searchsorted(lanes.warps, lanes.warp_of)
        first = np.full(len(lanes.warps), WARP)
        np.minimum.at(first, row, lanes.threads % WARP)
        leader = first[row]
        put_lane(lanes, np.broadcast_to(leader.astype(np.uint32), (2, len(lanes))))
        put(lanes, np.broadcast_to(lanes.threads % WARP == leader, (2, len(lanes))))

    return collective(site, 1, elect)


_REDUCTIONS = {"add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and,
               "or": np.bitwise_or, "xor": np.bitwise_xor}  # fmt: skip


def _redux(site: Site) -> Run:
    site.takes("sync", _REDUCTIONS)
    function = _REDUCTIONS[site.one(*_REDUCTIONS)]
    value, put = site.fetch(1), site.store()

    def reduce(lanes: Lanes) -> None:
        values = value(lanes)
        first = np.searchsorted(lanes.warp_of, lanes.warps)
        total = function.reduceat(values, first, axis=1, dtype=values.dtype)
        put(lanes, total[:, np.searchsorted(lanes.warps, lanes.warp_of)])

    return collective(site, 2, reduce)


def _match(site: Site) -> Run:
    """match.any: the lanes that hold the same value; match.all: whether all do."""
    site.takes("sync", "any", "all")
    every = site.one("any", "all") == "all"
    result = site.operand(0)
    put = site.registers.store(result.first if isinstance(result, Pair) else result, "b32", site.at)
    put_same = (
        site.registers.store(result.second, "pred", site.at) if isinstance(result, Pair) else None
    )
    value = site.fetch(1)

    def match(lanes: Lanes) -> None:
        held = full(value(lanes), lanes)
        here = full(np.ones((2, len(lanes)), np.bool_), lanes)
        same = (held[..., None] == held[..., None, :]) & here[..., None, :]
        words = (same.astype(np.uint64) << _LANE.astype(np.uint64)).sum(-1).astype(np.uint32)
        if every:
            alike = (same.sum(-1) == here.sum(-1)[..., None]) & here
            words = np.where(alike, words, np.uint32(0))
            if put_same is not None:
                put_same(lanes, back(alike, lanes))
        put(lanes, back(words, lanes))

    return collective(site, 2, match)


OPS: dict[str, Decoder] = {
    "shfl": _shfl,
    "vote": _vote,
    "activemask": _activemask,
    "elect": _elect,
    "redux": _redux,
    "match": _match,
}
