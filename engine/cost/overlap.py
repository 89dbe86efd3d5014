"""How much of several chains' work runs at the same time.

A chain is a warpgroup (or a block without warpgroups): its ops follow each other, but for matmuls
that it has in flight. All chains of a multiprocessor share its units, so together they are a closed
queueing network: each unit is a station, each chain a customer that visits every station once a
step, and waiting for results a delay. Mean value analysis gives the rate (Reiser and Lavenberg
1980, in Schweitzer's approximation). With one chain the times add up; with many the busiest unit is
the limit; with two or three, as here, units stand idle some of the time although none is full.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.cost.card import Card
from engine.cost.demand import total
from engine.cost.nodes import Op
from engine.cuir.ops.traits import ASYNC_MATMULS

_ROUNDS = 200


def stays(demands: Mapping[str, float], waiting: float, customers: float) -> dict[str, float]:
    """Cycles that a customer is at each station per visit, what it stands there for others in it.

    `demands` are cycles of each station per visit, `waiting` the delay, `customers` at least 1 (it
    need not be whole).
    """
    busy = {name: d for name, d in demands.items() if d > 0}
    customers = max(customers, 1.0)
    if not busy or customers == 1.0:
        return busy
    queue = dict.fromkeys(busy, customers / len(busy))
    whole, stay = 0.0, busy
    for _ in range(_ROUNDS):
        seen = (customers - 1) / customers
        stay = {name: d * (1 + seen * queue[name]) for name, d in busy.items()}
        before, whole = whole, waiting + sum(stay.values())
        queue = {name: customers * s / whole for name, s in stay.items()}
        if abs(whole - before) < 1e-9 * whole:
            break
    return stay


def round_time(demands: Mapping[str, float], waiting: float, customers: float) -> float:
    """Cycles from one visit of a customer to its next; arguments as of `stays`."""
    whole = waiting + sum(stays(demands, waiting, customers).values())
    # No station does more than it can: an approximation may say so in its last digits.
    return max(whole, max(customers, 1.0) * max(demands.values(), default=0.0))


def alone(step: Sequence[Op], card: Card) -> float:
    """Cycles of one step of a chain that has the multiprocessor for itself, in the steady state.

    Asynchronous matmuls run until a wait asks for their group; everything else takes its time.
    """
    now, free, pending = 0.0, 0.0, 0.0
    groups: list[float] = []
    ends: list[float] = []
    for _ in range(4):
        for op in step:
            cycles = op.demand.cycles(card)
            if op.name in ASYNC_MATMULS:
                free = max(now, free) + cycles["tensor"]
                pending = max(pending, free + op.demand.latency(card))
            elif op.name == "mma_commit":
                groups.append(pending)
            elif op.name == "mma_wait":
                if len(groups) > op.keep:
                    now = max(now, groups[len(groups) - 1 - op.keep])
                    del groups[: len(groups) - op.keep]
            else:
                now += sum(cycles.values()) + op.demand.latency(card)
        ends.append(now)
    return max((ends[-1] - ends[0]) / (len(ends) - 1), 1e-9)


def step_time(step: Sequence[Op], chains: float, card: Card) -> float:
    """Cycles that every one of `chains` chains takes for a step when all take such steps."""
    demand = total(op.demand for op in step)
    cycles, waiting = demand.cycles(card), demand.latency(card)
    if sum(cycles.values()) + waiting <= 0:
        return 0.0
    own = at_once(step, card)
    return round_time(cycles, waiting, chains * own) / own


def at_once(step: Sequence[Op], card: Card) -> float:
    """How many customers a chain counts as: as many as its work, added up, is longer than its step
    alone, which is above 1 where it keeps matmuls in flight."""
    demand = total(op.demand for op in step)
    serial = sum(demand.cycles(card).values()) + demand.latency(card)
    return max(serial / alone(step, card), 1.0)


def slower(step: Sequence[Op], chains: float, card: Card) -> dict[str, float]:
    """By unit, how many times its own cycles an op takes there beside what else is resident, so
    that the ops of the step together stay at each unit as long as the step does."""
    demand = total(op.demand for op in step)
    cycles, waiting = demand.cycles(card), demand.latency(card)
    found = stays(cycles, waiting, chains * at_once(step, card))
    added = [op.demand.cycles(card) for op in step]  # its FP32 hides under another's ALU
    return {unit: stay / sum(each[unit] for each in added) for unit, stay in found.items()}
