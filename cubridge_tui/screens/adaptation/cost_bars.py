"""Predicted times and units as bars, with what a GPU measured beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cubridge_tui.model.costs import Costs, told
from cubridge_tui.model.gpu_results import FLOPS, Chart, bar_of, contestants, measured_on
from cubridge_tui.model.rows import Row, RowKind, wrapped
from cubridge_tui.text.highlight import Span
from cubridge_tui.text.sanitise import one_line
from engine.cost.card import card_of_device
from engine.cost.timeline.events import Timeline
from engine.service.views.costing import EXPERT

NAME = 38
NUMBERS = 24  # cells right of a bar


def cost_chart(
    costs: Costs, target: str, timelines: Sequence[tuple[str, Timeline]],
    measured: Mapping[str, Any], width: int,
) -> Chart:  # fmt: skip
    """Each unit's share of the time, the expert's beside the target's; then TFLOP/s, with the
    points that G4 measured (`measured`: its details) for the same card and shape on one scale."""
    rows: list[Row] = []
    spans: list[tuple[Span, ...]] = []
    room = max(width - NAME - NUMBERS, 8)

    def add(text: str, *styles: Span, kind: RowKind = RowKind.SAME) -> None:
        rows.append(Row(one_line(text), kind))
        spans.append(styles)

    def words(text: str) -> None:
        """A line to read, all of it in sight."""
        rows.extend(pieces := wrapped(Row(one_line(text)), max(width, 20)))
        spans.extend((Span(0, len(p.text), "dim"),) for p in pieces)

    def bar(name: str, share: float, number: str, ours: bool) -> None:
        drawn, style = bar_of(share, room, ours), "bar.ours" if ours else "bar.rival"
        text = f"{one_line(name, NAME - 2):<{NAME}}{drawn:<{room}} {number}"
        add(text, Span(NAME, NAME + len(drawn), style))

    units = [unit for _, found in timelines for unit, share in found.busy.items() if share > 0.005]
    if units:
        add("share of the time that each unit is busy, predicted", kind=RowKind.HEAD)
    for unit in dict.fromkeys(units):
        for number, (whose, found) in enumerate(timelines):
            share = found.busy.get(unit, 0.0)
            name = f"{unit if not number else ''}"
            bar(f"{name:<29} {whose}", share, f"{100 * share:3.0f}%", whose == "target")
    points = points_of(measured)
    where = costs.where
    predicted = [
        (f"{whose}, predicted", cost.tflops, whose == "target")
        for whose, name in (("expert", EXPERT), ("target", target))
        if (cost := costs.known(name)) is not None
    ]
    here = [
        p for p in points
        if where is not None and p[0] == where.name.lower() and p[1].endswith(where.shape)
    ]  # fmt: skip
    if predicted and where is not None:
        add("")
        add("TFLOP/s of kept pairs", kind=RowKind.HEAD)
        top = max(t for _, t, _ in (*predicted, *((n, t, True) for _, _, n, t in here)))
        for name, tflops, ours in predicted:
            bar(name, tflops / top, f"{tflops:7.1f} TFLOP/s", ours)
        for _, _, name, tflops in here:
            at = NAME + min(round(tflops / top * room), room - 1)
            text = f"{one_line(name + ', measured', NAME - 2):<{at}}◆"
            add(f"{text:<{NAME + room}} {tflops:7.1f} TFLOP/s", Span(at, at + 1, "key"))
    if points:
        add("")
        add("measured by G4", kind=RowKind.HEAD)
        for device, shape, name, tflops in points:
            there = f"{shape} on {device.upper()}"
            add(f"{one_line(name, NAME - 2):<{NAME}}{tflops:7.1f} TFLOP/s  {there}")
        for line in (f"measured on {measured_on(measured)}", FLOPS):
            words(line)
    else:
        add("")
        words("no measured points: G4 has timed nothing")
    for line in told(costs, target):
        words(line)
    return Chart(tuple(rows), tuple(spans))


def points_of(measured: Mapping[str, Any]) -> list[tuple[str, str, str, float]]:
    """What was timed: the card of the cost model (else the device), the case, whose, TFLOP/s."""
    device = measured.get("device")
    name = str(device.get("name") or "") if isinstance(device, Mapping) else ""
    known = card_of_device(name)
    return [
        (known.name if known is not None else name, case, one.name, one.tflops)
        for case, members in contestants(measured).items()
        for one in members
        if one.tflops is not None
    ]
