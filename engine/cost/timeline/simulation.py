"""A discrete simulation of one block: op after op of every role, and what they wait for.

An op takes the cycles that the cost model gives it beside what else is resident: its own at each
unit, as many times as others that stand there make it longer (`overlap.slower`), then its latency.
What the simulation adds is the program's order: matmuls and copies in flight go on beside their
warpgroup until something waits for them, and mbarriers, named barriers and groups hold up who comes
early. So a step takes what the model says of it, and longer where the order costs time.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from engine.cost.card import Card
from engine.cost.timeline.trace import Moment, Trace
from engine.cuir.arch import WARPGROUP_THREADS
from engine.cuir.ops import OPS
from engine.cuir.ops.spec import Pending, Who
from engine.cuir.ops.traits import ASYNC_MATMULS, COMMITS, GROUP_WAITS, NAMED_BARRIERS, ORDERS
from engine.errors import CuirError

Slower = Callable[[int | None], Mapping[str, float]]
"""By step: how many times its cycles an op takes at each unit."""
Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """What a role does from one cycle to another: an op, or (`waits`) standing before it. `beside`:
    in flight, while the role goes on."""

    role: int
    op: str
    begin: float
    end: float
    step: int | None
    waits: bool = False
    beside: bool = False


@dataclass(slots=True)
class _Barrier:
    count: int = 1
    phase: int = 0
    arrived: int = 0
    bytes: float = 0.0


@dataclass(slots=True)
class _Group:
    """What a commit closes together."""

    started: int = 0
    landed: int = 0


@dataclass(slots=True)
class _Chain:
    """One role, where it stands in its moments."""

    role: int
    moments: Sequence[Moment]
    next: int = 0
    stands: float | None = None  # since when it waits
    phase: int | None = None  # of the barrier that it has arrived at
    free: float = 0.0  # when its asynchronous matmuls are through the tensor cores
    groups: dict[str, list[_Group]] = field(default_factory=dict)


class Simulation:
    """Runs a block's roles until those that take steps have done all their moments, or wait for
    what lies beyond the end of a cut trace."""

    def __init__(self, roles: Sequence[Trace], slower: Slower, card: Card) -> None:
        self.slower, self.card = slower, card
        self.now = 0.0
        self.spans: list[Span] = []
        self.begins: list[dict[int, float]] = [{} for _ in roles]  # by role: of its steps
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.made = 0
        self.barriers: dict[Key, _Barrier] = {}
        self.chains = [_Chain(n, role.moments) for n, role in enumerate(roles)]
        for chain in self.chains:
            self.go_on(chain)
        steppers = [c for c, role in zip(self.chains, roles, strict=True) if role.rows]
        while not all(_is_done(c) for c in steppers):
            if not self.events:
                cut = zip(self.chains, roles, strict=True)
                if any(role.cut and _is_done(c) for c, role in cut):
                    break
                raise CuirError("the roles wait for each other: none can go on")
            self.now, _, happens = heapq.heappop(self.events)
            happens()

    def at(self, time: float, happens: Callable[[], None]) -> None:
        self.made += 1
        heapq.heappush(self.events, (time, self.made, happens))

    # --- a role ----------------------------------------------------------------------------------

    def go_on(self, chain: _Chain) -> None:
        """Execute ops until one takes time or has to wait."""
        while chain.next < len(chain.moments):
            moment = chain.moments[chain.next]
            if moment.step is not None:
                self.begins[chain.role].setdefault(moment.step, self.now)
            if not self.may_pass(chain, moment):
                chain.stands = self.now if chain.stands is None else chain.stands
                return
            if chain.stands is not None:
                self.show(chain, moment, chain.stands, waits=True)
                chain.stands = None
            chain.next += 1
            if self.started(chain, moment):
                continue
            takes = self.takes(moment)
            if takes:
                begun = self.now

                def ended(moment: Moment = moment, begun: float = begun) -> None:
                    self.show(chain, moment, begun)
                    self.go_on(chain)

                self.at(self.now + takes, ended)
                return

    def takes(self, moment: Moment, only: str = "") -> float:
        """Cycles of an op beside what else is resident; `only` at one unit, without its latency."""
        slower, demand = self.slower(moment.step), moment.op.demand
        cycles = demand.cycles(self.card)
        at = {unit: c * slower.get(unit, 1.0) for unit, c in cycles.items()}
        return at[only] if only else sum(at.values()) + demand.latency(self.card)

    def show(
        self, chain: _Chain, moment: Moment, begun: float, *, waits: bool = False,
        beside: bool = False,
    ) -> None:  # fmt: skip
        if self.now > begun:
            name, step = moment.op.name, moment.step
            self.spans.append(Span(chain.role, name, begun, self.now, step, waits, beside))

    def wake(self) -> None:
        """Let go on whoever stands before something that has happened."""
        for chain in self.chains:
            if chain.stands is not None:
                self.go_on(chain)

    # --- what is waited for ----------------------------------------------------------------------

    def may_pass(self, chain: _Chain, moment: Moment) -> bool:
        """Whether an op may begin; who comes to a barrier that counts it arrives by that."""
        op, given = moment.op, moment.given
        if op.name in GROUP_WAITS:
            closed = chain.groups.get(OPS[op.name].needs or "", [_Group()])[:-1]
            return all(g.landed == g.started for g in closed[: len(closed) - op.keep])
        if OPS[op.name].who is Who.BLOCK:
            return self.together(chain, ("all",), len(self.chains))
        if op.order is None or op.name not in ORDERS:
            return True
        if op.name in NAMED_BARRIERS:
            return self.together(chain, ("named", given["id"]), given["threads"])
        return self.barrier(moment).phase % 2 != given["parity"]

    def together(self, chain: _Chain, key: Key, count: int) -> bool:
        by = 1 if key == ("all",) else WARPGROUP_THREADS
        barrier = self.barriers.setdefault(key, _Barrier())
        if chain.phase is None:
            barrier.count, chain.phase = count, barrier.phase
            self.arrive(barrier, by)
        if barrier.phase == chain.phase:
            return False
        chain.phase = None
        return True

    def barrier(self, moment: Moment) -> _Barrier:
        assert moment.op.order is not None
        key = (moment.op.order.barriers, moment.given.get("at", 0))
        return self.barriers.setdefault(key, _Barrier())

    def arrive(self, barrier: _Barrier, by: int = 1) -> None:
        barrier.arrived += by
        if barrier.arrived >= barrier.count and barrier.bytes <= 0:
            barrier.phase, barrier.arrived = barrier.phase + 1, 0
            self.at(self.now, self.wake)

    # --- what goes on beside ---------------------------------------------------------------------

    def started(self, chain: _Chain, moment: Moment) -> bool:
        """Whether an op takes its role no time: it starts or counts something."""
        op, given, spec = moment.op, moment.given, OPS[moment.op.name]
        if op.name in COMMITS or op.name in ASYNC_MATMULS or spec.pending is Pending.COPY:
            groups = chain.groups.setdefault(spec.needs or "", [_Group()])
            if op.name in COMMITS:
                groups.append(_Group())
                return True
            groups[-1].started += 1
            landed = self.landing(groups[-1])
            if op.name in ASYNC_MATMULS:
                self.multiply(chain, moment, landed)
                return True
            self.copy(chain, moment, landed)
            return False  # its threads issue it
        if spec.pending is Pending.BULK_LOAD:
            barrier, size = self.barrier(moment), op.demand.shared

            def loaded() -> None:
                barrier.bytes -= size
                self.arrive(barrier, 0)

            self.copy(chain, moment, loaded)
            return True
        if op.order is None or op.name in ORDERS:
            return False
        if op.name in NAMED_BARRIERS:
            barrier = self.barriers.setdefault(("named", given["id"]), _Barrier())
            barrier.count = given["threads"]
            self.arrive(barrier, WARPGROUP_THREADS)
        elif "count" in given:
            self.barrier(moment).count = given["count"]
        else:
            barrier = self.barrier(moment)
            barrier.bytes += given.get("bytes", 0)
            self.arrive(barrier)
        return True

    def landing(self, group: _Group) -> Callable[[], None]:
        def landed() -> None:
            group.landed += 1
            self.wake()

        return landed

    def multiply(self, chain: _Chain, moment: Moment, landed: Callable[[], None]) -> None:
        """An asynchronous matmul: the tensor cores after those before it, then its drain."""
        begun = max(self.now, chain.free)
        chain.free = begun + self.takes(moment, "tensor")
        self.at(chain.free, lambda: self.show(chain, moment, begun, beside=True))
        self.at(chain.free + moment.op.demand.latency(self.card), landed)

    def copy(self, chain: _Chain, moment: Moment, landed: Callable[[], None]) -> None:
        """Bytes from L2 at a multiprocessor's share of its rate, after its latency."""
        begun = self.now

        def lands() -> None:
            self.show(chain, moment, begun, beside=True)
            landed()

        moved = moment.op.demand.l2 / self.card.l2_bytes
        self.at(self.now + self.card.latency_l2 + moved, lands)


def _is_done(chain: _Chain) -> bool:
    return chain.next == len(chain.moments)
