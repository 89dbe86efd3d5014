"""Branches, ends, and barriers of a block (PTX ISA, "Control Flow", "bar", "barrier")."""

from __future__ import annotations

import numpy as np

from engine.ptx.barriers import MOST, Barriers
from engine.ptx.between import fences, fences_gpu
from engine.ptx.decode import Decoder, Site
from engine.ptx.isa.warp import members
from engine.ptx.lanes import Lanes
from engine.ptx.machine import Exit, Jump, Outcome, Run, Scatter
from engine.ptx.ordering import THREADS
from engine.ptx.syntax import Immediate, Symbol


def _target(site: Site, name: str) -> int:
    labels = site.machine.kernel.labels
    if name not in labels:
        raise site.refuse(f"no label {name}")
    return labels[name]


def _bra(site: Site) -> Run:
    site.takes("uni")
    operand = site.operand(0)
    if not isinstance(operand, Symbol):
        raise site.refuse("a label is needed")
    target = _target(site, operand.name)
    return lambda lanes: Jump(np.ones(len(lanes), np.bool_), target)


def _brx(site: Site) -> Run:
    site.takes("idx", "uni")
    table = site.operand(1)
    assert isinstance(table, Symbol)
    names = site.machine.kernel.tables.get(table.name)
    if names is None:
        raise site.refuse(f"no table {table.name}")
    targets = np.array([_target(site, n) for n in names])
    index = site.fetch(0, "u32")
    memory = site.machine.memory

    def branch(lanes: Lanes) -> Outcome:
        chosen = memory.same(index(lanes), lanes, site.at, "a branch")
        return Scatter(targets[chosen])

    return branch


def _exit(site: Site) -> Run:
    site.takes("uni")
    return lambda lanes: Exit(np.ones(len(lanes), np.bool_))


def _trap(site: Site) -> Run:
    site.takes()

    def trap(lanes: Lanes) -> Outcome:
        site.machine.report("trap", site.at, "the kernel stops itself", lanes)
        return Exit(np.ones(len(lanes), np.bool_))

    return trap


def _call(site: Site) -> Run:
    """Calls of the device's own functions: a failed assertion, and printf, which prints nothing."""
    names = [o.name for o in site.at.operands if isinstance(o, Symbol)]
    if "vprintf" in names:
        return lambda lanes: None
    if not any(n.startswith("__assertfail") for n in names):
        what = names[0] if names else "a function through a pointer"
        raise site.refuse(f"a call of {what} is not executed yet")

    def failed(lanes: Lanes) -> Outcome:
        site.machine.report("trap", site.at, "a device assertion failed", lanes)
        return Exit(np.ones(len(lanes), np.bool_))

    return failed


def _warp_sync(site: Site) -> Run:
    """bar.warp.sync: what lanes of a warp did before comes before what they do next."""
    site.takes("warp", "sync")
    check, clocks = members(site, 0), site.machine.clocks

    def sync(lanes: Lanes) -> Outcome | None:
        outcome = check(lanes)
        if outcome is None:
            clocks.advance(THREADS, lanes.warps)
        return outcome

    return sync


def _bar(site: Site) -> Run:
    """bar and barrier: sync, arrive, and bar.warp.sync."""
    if site.at.has("cluster"):
        return _cluster(site)
    if site.at.has("warp"):
        return _warp_sync(site)
    site.takes("sync", "arrive", "aligned", "cta")
    waits = site.at.has("sync")
    barriers: Barriers = site.machine.barriers
    name = site.fetch(0, "u32")
    count = site.fetch(1, "u32") if len(site.at.operands) > 1 else None
    memory, at = site.machine.memory, site.at

    def barrier(lanes: Lanes) -> Outcome | None:
        number = memory.same(name(lanes), lanes, at, "a barrier's number")
        expected = None if count is None else memory.same(count(lanes), lanes, at, "a count")
        return barriers.arrive(lanes, number, expected, waits, at)

    return barrier


def _cluster(site: Site) -> Run:
    """barrier.cluster, for clusters of one block: a barrier of the block, at the wait."""
    site.takes("cluster", "arrive", "wait", "aligned", "release", "acquire", "relaxed")
    if site.at.has("arrive"):
        return lambda lanes: None
    barriers: Barriers = site.machine.barriers

    def wait(lanes: Lanes) -> Outcome | None:
        return barriers.arrive(lanes, np.full(len(lanes), MOST), None, True, site.at)

    return wait


def _mapa(site: Site) -> Run:
    """The address in another block of the cluster: with clusters of one, the own one."""
    site.takes("shared::cluster")
    address, put = site.fetch(1), site.store()
    return lambda lanes: put(lanes, address(lanes))


def _fence(site: Site) -> Run:
    """Fences: between the generic and the asynchronous proxy, of a block, of the GPU."""
    site.takes("sc", "acq_rel", "cta", "cluster", "gpu", "sys", "gl", "proxy", "async", "alias",
               "mbarrier_init", "release", "acquire", "global", "shared::cta", "shared::cluster",
               "async.shared::cta", "tensormap::generic", "async::generic")  # fmt: skip
    clocks, flags, gpu = site.machine.clocks, site.machine.memory.flags, fences_gpu(site.at)
    if site.at.has("proxy") and site.at.has("async"):
        near, far = (
            not any(other in m for m in site.at.modifiers) for other in ("global", "shared")
        )
        return lambda lanes: clocks.fence(lanes.warps, near, far)
    if flags is None or not fences(site.at):
        return lambda lanes: None

    def fence(lanes: Lanes) -> None:
        flags.fence(lanes.warps)
        if gpu:
            clocks.fence_gpu(lanes.warps)

    return fence


def _set_registers(site: Site) -> Run:
    """What a warp may hold from here on; the sums are looked at when the batch has ended."""
    site.takes("inc", "dec", "sync", "aligned")
    count = site.operand(0)
    if not isinstance(count, Immediate):
        raise site.refuse("a constant number of registers is needed")
    machine, value, at = site.machine, count.value, site.at

    def run(lanes: Lanes) -> None:
        if value % 8 or not 24 <= value <= 256:
            machine.report("barrier misuse", at, f"{value} registers: not 24, 32, ... 256", lanes)
        machine.held[lanes.warps] = value
        if at.has("inc"):
            machine.grew = at

    return run


def _nothing(site: Site) -> Run:
    return lambda lanes: None


OPS: dict[str, Decoder] = {
    "bra": _bra,
    "brx": _brx,
    "ret": _exit,
    "exit": _exit,
    "trap": _trap,
    "call": _call,
    "brkpt": _trap,
    "bar": _bar,
    "barrier": _bar,
    "mapa": _mapa,
    "fence": _fence,
    "membar": _fence,
    "nanosleep": _nothing,
    "pmevent": _nothing,
    "setmaxnreg": _set_registers,
    "griddepcontrol": _nothing,
}
