"""A prediction as lines for a terminal and a page."""

from __future__ import annotations

from engine.cost.card import card
from engine.cost.demand import UNITS
from engine.cost.launched import DRAM, WAITING
from engine.cost.model import Prediction

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
