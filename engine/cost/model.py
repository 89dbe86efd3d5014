"""The prediction: from a module, sizes and a card to time, TFLOP/s, what bounds them, and lines.

    sizes = {"B": 2, "Hq": 32, "Hkv": 32, "Nq": 8192, "Nk": 8192, "scale": 0.09}
    predict(module, sizes, card("h100"))

Every launch of the host plan is walked for each of its blocks, as each warpgroup sees it; the steps
over key tiles are timed together with what else is resident on the multiprocessor; blocks are dealt
to multiprocessors in their order, as the hardware does; the card's clock follows from how busy the
tensor cores are. Nothing is fitted to a measured kernel: see docs/cost.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.cost.card import Card, card
from engine.cost.demand import UNITS
from engine.cost.launched import DRAM, WAITING, LaunchCost, Launched
from engine.cost.plan import launches
from engine.cuir.arch import Arch, arch, arch_of
from engine.cuir.nodes import Module, Name
from engine.errors import CuBridgeError, InputError


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the model says. `tflops` counts `flops`, the wanted ones where they were given, else
    those of all visited tiles; `unthrottled` is at the card's highest clock."""

    card: str
    arch: str
    microseconds: float
    tflops: float
    unthrottled: float
    clock_mhz: float
    flops: float
    visited_flops: float
    bound: str
    launches: tuple[LaunchCost, ...]
    notes: tuple[str, ...] = ()

    @property
    def main(self) -> LaunchCost:
        """The launch that takes longest."""
        return max(self.launches, key=lambda launch: launch.cycles)

    def to_json(self) -> dict[str, Any]:
        """Plain data for a record: the prediction and what it rests on."""
        main = self.main
        return {
            "card": self.card, "arch": self.arch, "us": round(self.microseconds, 3),
            "tflops": round(self.tflops, 2), "unthrottled_tflops": round(self.unthrottled, 2),
            "clock_mhz": round(self.clock_mhz), "bound": self.bound,
            "busy": {name: round(share, 3) for name, share in main.busy.items()},
            "registers": main.registers, "resident_blocks": main.resident, "limit": main.limit,
            "key_tiles": round(main.key_tiles), "notes": list(self.notes),
            "launches_us": {
                f"{launch.kernel}": round(launch.cycles / self.clock_mhz, 3)
                for launch in self.launches
            },
        }  # fmt: skip


def predict(
    module: Module,
    sizes: Mapping[str, int | float],
    card: Card,
    *,
    flops: float | None = None,
    on_arch: str | None = None,
    matmul_tflops: float | None = None,
) -> Prediction:
    """What `module` would take on `card` with `sizes` in its argument struct.

    `flops` are the ones that count (2 (D + Dv) per kept pair) where the caller knows the kept
    pairs; they also say how many tiles a mask that depends on data visits. `on_arch` is the arch
    that it is compiled for where that is not the module's own, `matmul_tflops` the card's matmul
    rate measured in the same run.

    Raises:
        InputError: the module has no host plan, its launches do not follow from the sizes, or it is
            no module that `check` would let pass.
    """
    try:
        return _predict(module, sizes, card, flops, on_arch, matmul_tflops)
    except CuBridgeError:
        raise
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
        RecursionError,
    ) as e:
        raise InputError(
            f"the cost model cannot follow this module ({type(e).__name__}: {e})",
            fix="`cubridge check FILE.cuir` says what is wrong with it",
        ) from e


def _predict(
    module: Module,
    sizes: Mapping[str, int | float],
    card: Card,
    flops: float | None,
    on_arch: str | None,
    matmul_tflops: float | None,
) -> Prediction:
    facts = arch(on_arch) if on_arch else arch_of(module)
    notes: list[str] = []
    costs = [cost for _, cost in followed(module, facts, sizes, card, flops, notes)]
    cycles = sum(c.cycles for c in costs)
    visited = sum(c.flops for c in costs)
    busy = visited / (cycles * card.multiprocessors * card.flops_cycle) if cycles else 0.0
    clock = card.clock(min(busy, 1.0), matmul_tflops)
    counted = flops if flops is not None else visited
    moved = _least_bytes(module, sizes, costs)
    memory = moved / card.dram_gbs * 1e-3
    launched = card.launch_us * len(costs)

    def time(mhz: float) -> float:
        return max(cycles / mhz, memory) + launched

    main = max(costs, key=lambda c: c.cycles)
    return Prediction(
        card=card.name,
        arch=facts.name,
        microseconds=time(clock),
        tflops=counted / time(clock) * 1e-6,
        unthrottled=counted / time(card.clock_mhz) * 1e-6,
        clock_mhz=clock,
        flops=counted,
        visited_flops=visited,
        bound=DRAM if memory > cycles / clock else main.bound,
        launches=tuple(costs),
        notes=tuple(dict.fromkeys(notes)),
    )


def followed(
    module: Module,
    facts: Arch,
    sizes: Mapping[str, int | float],
    card: Card,
    flops: float | None,
    notes: list[str],
) -> list[tuple[Launched, LaunchCost]]:
    """Every launch of the host function, walked and timed; what was assumed goes to `notes`.

    Raises:
        InputError: nothing is launched at these sizes.
    """
    out = []
    for launch in launches(module, sizes, card, facts):
        one = Launched(module, facts, launch, sizes, card, flops, notes)
        out.append((one, one.cost()))
    if not out:
        raise InputError(
            "nothing is launched at these sizes", fix="give sizes above 0: batch, heads and rows"
        )
    return out


def _least_bytes(
    module: Module, sizes: Mapping[str, int | float], costs: Sequence[LaunchCost]
) -> float:
    """Bytes of Q, K, V and O, each moved once, as far as sizes of these names are there."""
    if not all(name in sizes for name in ("B", "Hq", "Hkv", "Nq", "Nk")):
        return 0.0
    main = max(costs, key=lambda c: c.cycles)
    rows = sizes["B"] * (sizes["Hq"] * sizes["Nq"] + sizes["Hkv"] * sizes["Nk"])
    pairs = main.key_tiles
    if not pairs or not main.flops:
        return 0.0
    widths = [v for name, v in _numbers(module).items() if name in ("D", "DV", "Dv")]
    return 2.0 * rows * 2 * max(widths, default=0)


def _numbers(module: Module) -> dict[str, float]:
    out = {}
    for name, value in module.spec:
        number = getattr(value, "value", None)
        if isinstance(number, int | float) and not isinstance(value, Name):
            out[name] = float(number)
    return out


SATURATED = 0.6  # of the time


def bound_words(prediction: Prediction) -> str:
    """What bounds it, as true as the model knows: a unit only where it is busy most of the time.

    Chains of dependent work leave every unit idle for a while (docs/cost.md, Overlap): where none
    is busy for `SATURATED` of the time, more of one unit's rate would gain little.
    """
    if prediction.bound == DRAM:
        return DRAM
    name, share = max(prediction.main.busy.items(), key=lambda item: item[1])
    if share >= SATURATED and prediction.bound != WAITING:
        return f"{name}, {100 * share:.0f}% busy"
    return f"latency: the busiest unit, {name}, only {100 * share:.0f}%"


def lines(prediction: Prediction) -> list[str]:
    """Time, rate and bound; then each launch with its blocks, its steps and its units' shares."""
    facts = card(prediction.card)
    out = [
        f"predicted on {facts.title}: {prediction.microseconds:,.1f} us, "
        f"{prediction.tflops:,.0f} TFLOP/s at {prediction.clock_mhz:,.0f} MHz"
        + (
            f" (power; {prediction.unthrottled:,.0f} at {facts.clock_mhz:,.0f} MHz)"
            if prediction.clock_mhz < facts.clock_mhz
            else ""
        ),
        f"bound by {bound_words(prediction)}",
    ]
    for launch in prediction.launches:
        share = launch.cycles / sum(found.cycles for found in prediction.launches)
        out.append(
            f"{launch.kernel}: {100 * share:.0f}% of the time, {launch.blocks:,} blocks, "
            f"{launch.resident} resident on a multiprocessor (limit: {launch.limit}), "
            f"{launch.registers} registers, {launch.shared:,} bytes shared"
        )
        busy = sorted(launch.busy.items(), key=lambda item: -item[1])
        out.append("  busy: " + ", ".join(f"{name} {100 * part:.0f}%" for name, part in busy[:5]))
        for kind in launch.kinds:
            units = ", ".join(
                f"{UNITS[unit]} {cycles:,.0f}" for unit, cycles in kind.cycles.items() if cycles
            )
            out.append(
                f"  {100 * kind.share:.0f}% of {launch.key_tiles:,.0f} key tiles: cycles {units}; "
                f"waiting {kind.waiting:,.0f}; together {kind.together:,.0f}"
            )
    return [*out, *(f"assumed: {note}" for note in prediction.notes)]
