"""Timelines of the expert's kernel and of the target as lanes of cells, on one scale."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from engine.cost.timeline.events import BARRIER, COPY, MATMUL, SOFTMAX, WAIT, Event, Timeline

GLYPHS = {MATMUL: "█", SOFTMAX: "▓", COPY: "▒", BARRIER: "│", WAIT: "·"}
STYLES = {
    MATMUL: "mask.full", SOFTMAX: "bar.ours", COPY: "mask.partial", BARRIER: "key", WAIT: "dim",
}  # fmt: skip
SHOWN = {
    MATMUL: "matmul", SOFTMAX: "softmax and what goes with it", COPY: "copies", BARRIER: "barrier",
    WAIT: "waits",
}  # fmt: skip
SCHEMATIC = "schematic: simulated from the cost model's costs, not checked against a card's clock"


@dataclass(frozen=True, slots=True)
class Lane:
    """One lane of one of the timelines, its events in the order of their begin. Cycles count from
    where the shown key tile begins. A title (`whose`) stands over the first lane."""

    name: str
    whose: str
    events: tuple[Event, ...]
    begins: tuple[float, ...]

    def near(self, time: float) -> Event | None:
        """The event at a time, else the last one before it, else the first."""
        if not self.events:
            return None
        return self.events[max(bisect_right(self.begins, time) - 1, 0)]

    def among(self, low: float, high: float) -> Sequence[Event]:
        """Events that may be in sight between two times."""
        first = max(bisect_left(self.begins, low) - 2, 0)  # two may be on their way at once
        return self.events[first : bisect_right(self.begins, high)]


@dataclass(frozen=True, slots=True)
class Lanes:
    """All lanes; `tile` is the longest key tile's window, `first` and `last` all there is."""

    lanes: tuple[Lane, ...] = ()
    tile: float = 1.0
    first: float = 0.0
    last: float = 1.0


def lanes_of(timelines: Sequence[tuple[str, Timeline]]) -> Lanes:
    """The lanes of some timelines, one's below the other's."""
    out: list[Lane] = []
    tile = first = last = 0.0
    for whose, found in timelines:
        zero, end = found.window
        tile = max(tile, end - zero)
        moved = [Event(e.lane, e.op, e.kind, e.begin - zero, e.end - zero) for e in found.events]
        for number, name in enumerate(found.lanes):
            own = tuple(e for e in moved if e.lane == number)
            title = title_of(whose, found) if number == 0 else ""
            out.append(Lane(name, title, own, tuple(e.begin for e in own)))
        first = min([first, *(e.begin for e in moved)])
        last = max([last, *(e.end for e in moved)])
    return Lanes(tuple(out), max(tile, 1.0), first, max(last, 1.0))


def title_of(whose: str, found: Timeline) -> str:
    """What a timeline is, and how near the simulation is to the cost model."""
    if not found.predicted:
        return f"{whose}: {found.kernel}, no row of key tiles is long enough to measure one"
    apart = round(100 * (found.tile / found.predicted - 1), 1) + 0.0  # never -0.0
    more = f", {found.resident} blocks beside each other" if found.resident > 1 else ""
    return (
        f"{whose}: a key tile takes {found.tile:,.0f} cycles; the cost model says "
        f"{found.predicted:,.0f} ({apart:+.1f}%){more}"
    )


def drawn(lane: Lane, start: float, scale: float, width: int) -> list[tuple[str, str]]:
    """`width` cells of a lane, each `scale` cycles, as stretches of one style (text, style); an
    op's name stands in it where it fits. Where several events fall into a cell the longest is
    shown, and a barrier that would be lost beside a blank."""
    glyphs, styles = [" "] * width, [""] * width
    taken = [0.0] * width
    names: list[tuple[int, int, Event]] = []
    for event in lane.among(start, start + scale * width):
        low = (event.begin - start) / scale
        high = (event.end - start) / scale
        if high <= 0 or low >= width:
            continue
        first, last = max(int(low), 0), min(int(high), width - 1)
        mine = []
        for x in range(first, last + 1):
            part = min(high, x + 1) - max(low, x)
            if part > taken[x]:
                taken[x], glyphs[x], styles[x] = part, GLYPHS[event.kind], STYLES[event.kind]
                mine.append(x)
        if mine and event.kind in (MATMUL, SOFTMAX, COPY):
            names.append((mine[0], mine[-1], event))
    for low_x, high_x, event in names:
        if high_x - low_x >= len(event.op) + 2:
            glyphs[low_x + 1 : low_x + 1 + len(event.op)] = event.op
    out, at = [], 0
    for style, same in groupby(styles):
        end = at + len(list(same))
        out.append(("".join(glyphs[at:end]), style))
        at = end
    return out


def words_of(lane: Lane, event: Event) -> str:
    """An event as a sentence."""
    takes = f"{event.end - event.begin:,.0f} cycles, from {event.begin:,.0f} to {event.end:,.0f}"
    does = f"waits at {event.op}" if event.kind == WAIT else f"{event.op} ({SHOWN[event.kind]})"
    return f"{lane.name}: {does}, {takes}"


def legend() -> list[tuple[str, str]]:
    """What the glyphs mean, as parts of a line."""
    return [
        part
        for kind, words in SHOWN.items()
        for part in ((f" {GLYPHS[kind]}", STYLES[kind]), (f" {words} ", "dim"))
    ]
