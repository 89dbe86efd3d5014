"""One launch of a kernel: every block walked, timed beside what is resident with it, and dealt."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.build.machine_code.occupancy import Residency, resident_blocks
from engine.cost.card import Card
from engine.cost.demand import UNITS, Demand, total
from engine.cost.nodes import Op, has_steps, shape
from engine.cost.overlap import alone, round_time, step_time
from engine.cost.plan import Launch, constants, flags_keys
from engine.cost.registers import OTHER, most_alive
from engine.cost.tree import role_tree
from engine.cost.values import Values
from engine.cost.walk import Step, Tally, Walker
from engine.cuir.arch import WARPGROUP_THREADS, Arch
from engine.cuir.nodes import Module
from engine.cuir.ops.traits import ELECTIONS
from engine.cuir.static.facts import Facts
from engine.errors import InputError

WAITING = "waiting for results"
L2 = "L2 bandwidth"
DRAM = "DRAM bandwidth"
MOST_BLOCKS = 1 << 20
MOST_PREPARING = 256  # blocks that are walked of a kernel without matmuls
FLAGGED = 0.8  # of the keys have a flag that is set, as jobs draw them


@dataclass(frozen=True, slots=True)
class StepCost:
    """One kind of step over a key tile, for all warpgroups of a block together.

    `cycles` by unit of one multiprocessor; `share` of all steps.
    """

    cycles: Mapping[str, float]
    waiting: float
    together: float
    share: float


@dataclass(frozen=True, slots=True)
class LaunchCost:
    """One launch. `busy` is each unit's share of the time, over all multiprocessors."""

    kernel: str
    blocks: int
    resident: int
    limit: str
    chains: int
    registers: int
    shared: int
    steps: float
    key_tiles: float
    kinds: tuple[StepCost, ...]
    busy: Mapping[str, float]
    flops: float
    flops_pair: float  # 2 (D + Dv): of a step over the pairs of its score tile
    cycles: float
    bound: str


class Launched:
    """One launch on its way to a cost."""

    def __init__(
        self,
        module: Module,
        facts: Arch,
        launch: Launch,
        sizes: Mapping[str, int | float],
        card: Card,
        flops: float | None,
        notes: list[str],
    ) -> None:
        self.module, self.facts, self.launch = module, facts, launch
        self.sizes, self.card, self.flops, self.notes = sizes, card, flops, notes
        self.by_itself: dict[Op, tuple[float, float]] = {}
        self.ramps: dict[Step, float] = {}
        self.longest = 0  # the block that takes most steps, once `cost` has walked them
        functions = {f.name: f for f in module.functions if f.kind == "device"}
        self.values = Values(functions, facts, card.multiprocessors)
        by_warpgroups = Facts(module).by_warpgroups(launch.kernel)
        groups = launch.threads // WARPGROUP_THREADS
        units: list[int | None] = [*range(groups)] if by_warpgroups and groups else [None]
        self.roles = [
            role_tree(
                module, facts, launch.kernel, launch.consts, launch.threads, unit, self.values
            )
            for unit in units
        ]
        self.registers = self.estimated()
        found = resident_blocks(facts, launch.threads, self.registers, launch.shared)
        self.residency = found if found.blocks else Residency(1, found.limit)

    def estimated(self) -> int:
        """Registers per thread at the launch: live tiles and some, within the launch bounds."""
        if len(self.roles) > 1:
            return self.allowed()  # warpgroups deal the file among themselves
        return min(self.allowed(), math.ceil((self.alive() + OTHER) / 8) * 8)

    def allowed(self) -> int:
        """Registers per thread that the launch bounds leave."""
        options = dict(self.module.function(self.launch.kernel).options)
        env = {**self.launch.consts, **self.launch.numbers}
        bound = self.values.number(options["min_blocks"])(env) if "min_blocks" in options else 1
        return self.facts.registers_at_launch(self.launch.threads, int(bound))

    def alive(self) -> float:
        """Registers that a thread's tiles take where most are alive, in the role with most."""
        body = self.module.function(self.launch.kernel).body
        return max(most_alive(body, role.tiles, role.threads) for role in self.roles)

    # --- blocks ------------------------------------------------------------------------------

    def env(self, block: int) -> dict[str, Any]:
        """What a block's scalars are computed from."""
        index = _index(block, self.launch.grid)
        env: dict[str, Any] = {
            **self.launch.consts, **self.launch.numbers, **dict.fromkeys(ELECTIONS, True),
            "args": {
                **{f.name: 0 for f in self.module.fields if f.type != "tensor"}, **self.sizes,
            },
        }  # fmt: skip
        for axis in range(3):
            size = self.launch.grid[axis] if axis < len(self.launch.grid) else 1
            env[f"grid_dim.{axis}"] = size
            env[f"block_id.{axis}"] = index[axis] if axis < len(index) else 0
        return env

    def cost(self) -> LaunchCost:
        launch, card = self.launch, self.card
        if launch.blocks > MOST_BLOCKS:
            raise InputError(
                f"{launch.kernel} is launched on {launch.blocks:,} blocks, too many to walk",
                fix="give smaller sizes: time goes with the blocks",
            )
        walkers = self.walkers()
        tallies: list[list[Tally]] = []
        matmuls = any(has_steps(role.nodes) for role in self.roles)
        # What only prepares (tile lists) is walked for some blocks, each standing for those after.
        stride = 1 if matmuls else -(-launch.blocks // MOST_PREPARING)
        for number in range(0, launch.blocks, stride):
            env = self.env(number)
            made = {walker: walker.block(env) for walker in dict.fromkeys(walkers)}
            repeats = min(stride, launch.blocks - number)
            tallies += [[made[walker] for walker in walkers]] * repeats
        self.guess(tallies)
        self.longest = (
            max(range(len(tallies)), key=lambda n: sum(sum(t.steps.values()) for t in tallies[n]))
            * stride
        )
        resident = min(self.residency.blocks, -(-launch.blocks // card.multiprocessors))
        groups = max(self.computing(tallies), 1)
        chains = groups * resident
        times: dict[Step, float] = {}
        # Blocks that share their tallies take as long as each other.
        known: dict[tuple[int, ...], float] = {}
        spans = []
        for found in tallies:
            same = tuple(map(id, found))
            if same not in known:
                known[same] = self.span(found, chains, resident, times)
            spans.append(known[same])
        cycles = _dealt(spans, card.multiprocessors * resident)
        all_blocks = Tally()
        for found in tallies:
            for tally in found:
                all_blocks.add(tally)
        whole, steps = all_blocks.other, all_blocks.steps
        demand = total(op.demand.times(n) for op, n in whole.items())
        for step, count in steps.items():
            demand = demand + total(op.demand for op in step).times(count)
        cycles = max(cycles, demand.dram / self.dram_bytes)
        busy = self.busy(demand, cycles)
        return LaunchCost(
            launch.kernel, launch.blocks, resident, self.residency.limit, chains, self.registers,
            launch.shared, float(sum(steps.values())), sum(steps.values()) / groups,
            self.kinds(steps, groups, times), busy, demand.flops, _flops_pair(steps), cycles,
            self.bound(busy, demand),
        )  # fmt: skip

    @property
    def dram_bytes(self) -> float:
        """Of the whole card, in a cycle at its highest clock."""
        return self.card.dram_gbs * 1e3 / self.card.clock_mhz

    def walkers(self) -> list[Walker]:
        """One for each role; warpgroups that do the same share one."""
        known: dict[tuple[object, ...], Walker] = {}
        matmuls = any(has_steps(role.nodes) for role in self.roles)
        likely = 1.0 if matmuls else self.likely()
        cut = None if matmuls else self.cut(self.launch.consts.get("BN"))
        return [
            known.setdefault(shape(role.nodes), Walker(role.nodes, self.card, likely, cut=cut))
            for role in self.roles
        ]

    def cut(self, keys: object) -> float | None:
        """Key tiles of a row block that a mask by flags cuts: all that the rest of the mask leaves.
        None where no mask reads a flag of each key, or nothing is known of the kept pairs."""
        if self.flops is None or not isinstance(keys, int) or not flags_keys(self.module):
            return None
        every = math.ceil(float(self.sizes.get("Nk", keys)) / keys)
        return min(1.0, self.likely() / FLAGGED) * every

    def likely(self) -> float:
        """The share of pairs that are kept, as far as that is known; 1 where it is not."""
        sizes = [float(self.sizes.get(n, 0)) for n in ("B", "Hq", "Nq", "Nk")]
        widths = [self.launch.consts.get(n) for n in ("D", "DV", "Dv")]
        widths = widths if any(widths) else [constants(self.module).get("D")]
        known = [float(w) for w in widths if isinstance(w, int | float)]
        every = 4.0 * max(known, default=0.0) * math.prod(sizes)
        return min(1.0, self.flops / every) if self.flops is not None and every else 1.0

    def guess(self, tallies: Sequence[Sequence[Tally]]) -> None:
        """Give loops that data bounds a number of rounds: from the kept pairs, else all keys."""
        open_ended = list({id(t): t for found in tallies for t in found if t.unknown}.values())
        if not open_ended:
            return
        inside, edges = self.rounds(tallies)
        for tally in open_ended:
            for (costly, cheap), count in tally.unknown.items():
                for step, rounds in ((costly, edges), (cheap, inside)):
                    if any(op.matmul for op in step):
                        tally.steps[step] += count * rounds
                    else:
                        for op in step:
                            tally.other[op] += count * rounds

    def computing(self, tallies: Sequence[Sequence[Tally]]) -> int:
        """How many of the roles take steps over key tiles."""
        return sum(
            any(found[r].steps or any(op.matmul for step, _ in found[r].unknown for op in step)
                for found in tallies)
            for r in range(len(self.roles))
        )  # fmt: skip

    def rounds(self, tallies: Sequence[Sequence[Tally]]) -> tuple[float, float]:
        """Rounds of a loop over key tiles that data bounds: inside the mask, and at its edges."""
        met: dict[Step, float] = {}
        for found in tallies:
            for tally in found:
                for (step, _), count in tally.unknown.items():
                    if any(op.matmul for op in step):
                        met[step] = met.get(step, 0.0) + count
        if not met:
            return 0.0, 1.0
        step = next(iter(met))
        rows, keys = _area(step)
        if not rows or not keys:
            return 0.0, 1.0
        every = float(math.ceil(float(self.sizes.get("Nk", keys)) / keys))
        if self.flops is None:
            self.notes.append("the mask depends on data: every key tile counts as an edge of it")
            return 0.0, every
        cut = self.cut(keys)
        if cut is not None:
            self.notes.append(
                f"the mask reads a flag of each key: it cuts each of {cut:.1f} key tiles per row "
                f"block, {FLAGGED:.0%} of whose flags are set"
            )
            return 0.0, cut
        per_pair = total(op.demand for op in step).flops / (rows * keys)
        kept = self.flops / per_pair / sum(met.values()) / (rows * keys)
        # A kept region ends half a tile past its keys on either side, and its edge crosses the
        # block's rows: half of them beside it. As many tiles again are cut by it.
        more = 1.0 + 0.5 * rows * max(self.computing(tallies), 1) / keys
        rounds = min(every, kept + more)
        inside = max(0.0, min(kept - more, rounds))
        self.notes.append(
            f"the mask depends on data: {rounds:.1f} key tiles per row block, {kept:.1f} from the "
            f"kept pairs and {rounds - kept:.1f} for their edges"
        )
        return inside, rounds - inside

    def span(
        self, found: Sequence[Tally], chains: int, resident: int, times: dict[Step, float]
    ) -> float:
        """Cycles that a block is on its multiprocessor, beside as many others as fit."""
        card = self.card
        longest, moved, ramp = 0.0, 0.0, 0.0
        for tally, role in zip(found, self.roles, strict=True):
            # Fewer than 128 threads have a part of the multiprocessor's lanes.
            part = max(1.0, WARPGROUP_THREADS / role.threads)
            own = 0.0
            for op, count in tally.other.items():
                cycles, waiting = self.of(op)
                own += count * (cycles * part + waiting)
                moved += count * op.demand.l2
            if not tally.steps and len(self.roles) == 1:
                demand = total(op.demand.times(n) for op, n in tally.other.items())
                busy = {unit: c * part for unit, c in demand.cycles(card).items()}
                own = max(own, round_time(busy, demand.latency(card), resident / part))
            for step, count in tally.steps.items():
                if step not in times:
                    times[step] = step_time(step, chains, card)
                own += count * times[step]
                ramp = max(ramp, self.first(step))
                moved += count * sum(op.demand.l2 for op in step)
            if tally.steps or len(self.roles) == 1:
                longest = max(longest, own)
        # A block's first loads, and its first and last steps, which find nothing to run beside but
        # what else is resident.
        begin = (card.latency_dram + ramp) / resident
        return max(longest + begin, resident * moved / card.l2_bytes)

    def first(self, step: Step) -> float:
        """Cycles of a step that finds nothing to run beside."""
        if step not in self.ramps:
            self.ramps[step] = alone(step, self.card)
        return self.ramps[step]

    def of(self, op: Op) -> tuple[float, float]:
        """Cycles that an op takes alone, and cycles that it waits for results."""
        if op not in self.by_itself:
            cycles = sum(op.demand.cycles(self.card).values())
            self.by_itself[op] = (cycles, op.demand.latency(self.card))
        return self.by_itself[op]

    def busy(self, demand: Demand, cycles: float) -> dict[str, float]:
        """Each unit's share of the multiprocessors' time."""
        room = max(cycles, 1e-9) * self.card.multiprocessors
        out = {UNITS[unit]: c / room for unit, c in demand.cycles(self.card).items()}
        out[L2] = demand.l2 / self.card.l2_bytes / room
        if demand.dram:
            out[DRAM] = demand.dram / self.dram_bytes / max(cycles, 1e-9)
        return out

    def bound(self, busy: Mapping[str, float], demand: Demand) -> str:
        """The busiest unit; waiting, where results take longer than any unit is busy."""
        name = max(busy, key=lambda unit: busy[unit])
        cycles = demand.cycles(self.card)
        waiting = demand.latency(self.card)
        return WAITING if waiting > max(cycles.values()) and busy[name] < 0.5 else name

    def kinds(
        self, steps: Mapping[Step, float], groups: int, times: Mapping[Step, float]
    ) -> tuple[StepCost, ...]:
        """The kinds of steps, most frequent first, as a block's warpgroups together take them."""
        whole = sum(steps.values())
        shares: dict[tuple[tuple[str, Demand], ...], float] = {}
        example: dict[tuple[tuple[str, Demand], ...], Step] = {}
        for step, count in steps.items():  # warpgroups that do the same are one kind
            key = tuple((op.name, op.demand) for op in step)
            shares[key] = shares.get(key, 0.0) + count / whole
            example[key] = step
        out = []
        for key, share in sorted(shares.items(), key=lambda item: -item[1])[:4]:
            step = example[key]
            demand = total(op.demand for op in step)
            cycles = {u: c * groups for u, c in demand.cycles(self.card).items()}
            out.append(StepCost(cycles, demand.latency(self.card), times[step], share))
        return tuple(out)


def _index(number: int, grid: Sequence[int]) -> tuple[int, ...]:
    """A block's indices in the order that the hardware hands blocks out: axis 0 first."""
    out = []
    for size in grid:
        out.append(number % size)
        number //= size
    return tuple(out)


def _area(step: Step) -> tuple[int, int]:
    """Rows and keys of the score tile: the accumulator of the step's first matmul."""
    for op in step:
        if op.matmul and op.tile is not None:
            return op.tile.layout.rows, op.tile.layout.cols
    return 0, 0


def _flops_pair(steps: Mapping[Step, float]) -> float:
    for step in steps:
        rows, keys = _area(step)
        if rows and keys:
            return total(op.demand for op in step).flops / (rows * keys)
    return 0.0


def _dealt(spans: Sequence[float], places: int) -> float:
    """The end of the last block when each goes to the first free place, in order."""
    if len(spans) <= places:
        return max(spans, default=0.0)
    free = [0.0] * places
    for span in spans:
        heapq.heapreplace(free, free[0] + span)
    return max(free)
