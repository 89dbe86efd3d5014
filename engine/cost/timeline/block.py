"""One block of a kernel over time: what each of its warpgroups does, from the simulation.

Schematic: nothing here was checked against the clock of a card. What it rests on is what the cost
model rests on (docs/cost.md), and a step over a key tile takes what that says within a few percent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from engine.cost.card import Card
from engine.cost.launched import Launched
from engine.cost.model import followed
from engine.cost.overlap import slower, step_time
from engine.cost.timeline.events import BARRIER, COPY, MATMUL, SOFTMAX, WAIT, Event, Timeline
from engine.cost.timeline.simulation import Simulation, Span
from engine.cost.timeline.trace import Trace
from engine.cost.tree import role_tree
from engine.cost.walk import Step
from engine.cuir.arch import arch_of
from engine.cuir.nodes import Module
from engine.cuir.ops import OPS
from engine.cuir.ops.spec import Effect, Pending, Who
from engine.cuir.ops.traits import MATMULS, ORDERS
from engine.errors import CuirError

STEPS = 12  # over key tiles, of each warpgroup
_MOVES = {Effect.READS_GLOBAL, Effect.WRITES_GLOBAL, Effect.WRITES_SHARED}


def timeline(
    module: Module, sizes: Mapping[str, int | float], card: Card, flops: float | None = None
) -> Timeline:
    """The block with the most key tiles of the longest launch that visits any; arguments as of
    `model.predict`.

    Raises:
        CuBridgeError: the cost model cannot follow the module, no launch visits key tiles at these
            sizes, or what its roles wait for depends on what tensors hold.
    """
    found = followed(module, arch_of(module), sizes, card, flops, [])
    found = sorted(found, key=lambda each: each[1].cycles, reverse=True)
    drawn = ((cost, traces(launched)) for launched, cost in found)
    cost, roles = next((each for each in drawn if any(r.rows for r in each[1])), (None, []))
    if cost is None:
        raise CuirError("no block visits a key tile at these sizes: there are no steps to show")
    chains = max(cost.chains, 1)
    steps = [role.of_steps() for role in roles]
    times: dict[int, Mapping[str, float]] = {
        number: slower(step, chains, card)
        for step_of in steps for number, step in step_of.items()
    }  # fmt: skip
    first = times.get(0, {})
    run = Simulation(roles, lambda step: times.get(step or 0, first), card)
    inside = [list(_inside(role, begins)) for role, begins in zip(roles, run.begins, strict=True)]
    whole = [(r, n) for r, found_inside in enumerate(inside) for n in found_inside]
    takes = [run.begins[r][n + 1] - run.begins[r][n] for r, n in whole]
    modelled = [step_time(steps[r][n], chains, card) for r, n in whole]
    lanes, events = _drawn(run.spans, len(roles))
    return Timeline(
        cost.kernel, lanes, events, _window(run, inside, steps),
        sum(takes) / max(len(takes), 1), sum(modelled) / max(len(takes), 1),
        cost.resident, cost.busy,
    )  # fmt: skip


def traces(launched: Launched) -> list[Trace]:
    """What every role executes of the block with the most steps."""
    launch, units = launched.launch, range(len(launched.roles))
    env = launched.env(launched.longest)
    trees = [
        role_tree(
            launched.module, launched.facts, launch.kernel, launch.consts, launch.threads,
            unit if len(units) > 1 else None, launched.values, orders=True,
        )
        for unit in units
    ]  # fmt: skip
    return [Trace(launched.card, tree.nodes, env, STEPS) for tree in trees]


def _inside(role: Trace, begins: Mapping[int, float]) -> Iterator[int]:
    """Steps between two others of the same row of tiles: at its ends, warpgroups wait for who still
    ends the row before."""
    for n in sorted(begins):
        if n + 1 in begins and role.rows[n - 1 : n + 2] == [role.rows[n]] * 3 and n:
            yield n


def _window(
    run: Simulation, inside: Sequence[Sequence[int]], steps: Sequence[Mapping[int, Step]]
) -> tuple[float, float]:
    """From where the first warpgroup begins its last step of the most frequent kind to where all
    have done theirs."""
    begins = run.begins
    takes = [r for r, found in enumerate(begins) if found]
    lead = takes[0]
    among = list(inside[lead]) or sorted(begins[lead])[:-1] or [0]
    kinds = {n: tuple((op.name, op.demand) for op in steps[lead][n]) for n in among}
    most = Counter(kinds.values()).most_common(1)[0][0]
    chosen = max(n for n in among if kinds[n] == most)
    ends = [begins[r][chosen + 1] for r in takes if chosen + 1 in begins[r]]
    ends = ends or [span.end for span in run.spans if span.step == chosen]  # the only step
    low = min(begins[r][chosen] for r in takes if chosen in begins[r])
    return low, max(ends)


def _drawn(spans: Sequence[Span], roles: int) -> tuple[tuple[str, ...], tuple[Event, ...]]:
    """Lanes in the order of roles: one for its ops and waits, one for what it has in flight."""
    kinds = [_kind(span) for span in spans]
    lanes: dict[tuple[int, bool], str] = {}
    for role in range(roles):
        name = f"warpgroup {role}" if roles > 1 else "block"
        for beside in (False, True):
            own = {
                kind for span, kind in zip(spans, kinds, strict=True)
                if (span.role, span.beside) == (role, beside)
            }  # fmt: skip
            if own:
                lanes[role, beside] = f"{name}, {_flight(own)}" if beside else name
    numbers = {key: n for n, key in enumerate(lanes)}
    events = [
        Event(numbers[s.role, s.beside], s.op, kind, s.begin, s.end)
        for s, kind in zip(spans, kinds, strict=True)
    ]
    events.sort(key=lambda e: (e.begin, e.lane))
    return tuple(lanes.values()), tuple(events)


def _flight(kinds: set[str]) -> str:
    return " and ".join(kind for kind in (COPY, MATMUL) if kind in kinds)


def _kind(span: Span) -> str:
    spec = OPS[span.op]
    if span.waits:
        return WAIT
    if span.op in MATMULS:
        return MATMUL
    if span.op in ORDERS or spec.who is Who.BLOCK:
        return BARRIER
    moves = spec.pending is not Pending.NONE or spec.effects & _MOVES
    return COPY if moves else SOFTMAX
