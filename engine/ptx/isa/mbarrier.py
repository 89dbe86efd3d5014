"""mbarrier instructions (PTX ISA, "Parallel Synchronization: mbarrier")."""

from __future__ import annotations

import numpy as np

from engine.ptx.decode import Decoder, Site
from engine.ptx.isa.data import ORDER, SPACES
from engine.ptx.lanes import Lanes
from engine.ptx.machine import Outcome, Run
from engine.ptx.mbarriers import MBarriers
from engine.ptx.spins import spins


def _mbarrier(site: Site) -> Run:
    site.takes("init", "inval", "arrive", "arrive_drop", "expect_tx", "test_wait", "try_wait",
               "parity", "noComplete", SPACES, ORDER)  # fmt: skip
    at = site.at
    if at.has("init"):
        return _init(site)
    if at.has("inval"):
        address = site.address(0)
        return lambda lanes: _all(site).inval(lanes, address(lanes), at)
    if at.has("test_wait") or at.has("try_wait"):
        return _wait(site)
    if at.has("arrive") or at.has("arrive_drop"):
        return _arrive(site)
    if at.has("expect_tx"):
        address, count = site.address(0), site.fetch(1, "u32")
        same = site.machine.memory.same

        def expect(lanes: Lanes) -> None:
            amount = same(count(lanes), lanes, at, "a number of bytes").astype(np.int64)
            _all(site).arrive(lanes, address(lanes), None, amount, at)

        return expect
    raise site.refuse("this use of an mbarrier is not executed yet")


def _all(site: Site) -> MBarriers:
    found: MBarriers = site.machine.mbarriers
    return found


def _init(site: Site) -> Run:
    address, count = site.address(0), site.fetch(1, "u32")
    at, same = site.at, site.machine.memory.same

    def init(lanes: Lanes) -> None:
        _all(site).init(lanes, address(lanes), same(count(lanes), lanes, at, "a count"), at)

    return init


def _arrive(site: Site) -> Run:
    """An arrival. Its state, which the ISA leaves opaque, is the number of its phase."""
    address, put = site.address(1), site.store(0, "b64")
    expect, drops = site.at.has("expect_tx"), site.at.has("arrive_drop")
    amount = site.fetch(2, "u32") if len(site.at.operands) > 2 else None
    at, same = site.at, site.machine.memory.same

    def arrive(lanes: Lanes) -> None:
        one = np.ones(len(lanes), np.int64)
        given = one
        if amount is not None:
            given = same(amount(lanes), lanes, at, "a count").astype(np.int64)
        count, tx = (one, given) if expect else (given, None)
        phases = _all(site).arrive(lanes, address(lanes), count, tx, at, drops)
        put(lanes, np.broadcast_to(phases, (2, len(lanes))))

    return arrive


def _wait(site: Site) -> Run:
    """Waits never block, or for a time alone (PTX ISA, "mbarrier.test_wait, mbarrier.try_wait").

    One that is made again until it is successful (`spins`) parks its threads until the phase is
    complete. Where nothing else can go on, that ends without success: a loop that waits for
    something else meanwhile goes on, and one that does not is a deadlock. Any other wait is without
    success once where it may be.
    """
    by_parity = site.at.has("parity")
    address, phase = site.address(1), site.fetch(2, "u32" if by_parity else "u64")
    what = "a parity" if by_parity else "an mbarrier's state"
    put = site.store(0, "pred")
    at, machine = site.at, site.machine
    again = spins(machine.kernel, site.place)

    def wait(lanes: Lanes) -> Outcome | None:
        where = address(lanes)
        wanted = machine.memory.same(phase(lanes), lanes, at, what)
        failed = None if again else _all(site).fail(lanes, where, wanted, by_parity, at)
        done = _all(site).test(lanes, where, wanted, by_parity, at, failed)
        waiting = ~done if failed is None else ~(done | failed)
        if waiting.any() and machine.timed_out:
            late = np.isin(lanes.threads, list(machine.timed_out))
            machine.timed_out = machine.timed_out - {int(t) for t in lanes.threads[late]}
            waiting &= ~late
        put(lanes, np.broadcast_to(done, (2, len(lanes))))
        if waiting.any():
            return _all(site).park(lanes, waiting, where, at)
        return None

    return wait


OPS: dict[str, Decoder] = {"mbarrier": _mbarrier}
