"""Where the time goes: a block over time, the expert's above the target's; units and rates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.app import ComposeResult

from cubridge_tui import actions
from cubridge_tui.model.facts import Facts
from cubridge_tui.screens.adaptation.cost_bars import cost_chart
from cubridge_tui.screens.adaptation.lanes import SCHEMATIC, lanes_of, legend, words_of
from cubridge_tui.screens.adaptation.timeline_pane import TimelinePane
from cubridge_tui.screens.base import ActionScreen, bindings
from cubridge_tui.widgets.chart_pane import ChartPane
from cubridge_tui.widgets.line import KeyBar, Line
from engine.cost.timeline.events import Timeline
from engine.service.views.costing import EXPERT
from engine.types import Gate

if TYPE_CHECKING:
    from cubridge_tui.screens.adaptation.costs import CostActions

WAITING = "is being simulated"


class CostScreen(ActionScreen):
    """The timelines of a session; they come from the process that predicts."""

    NAME = actions.COST
    BINDINGS = bindings(actions.COST)
    DEFAULT_CSS = """
    CostScreen TimelinePane { height: 50%; }
    CostScreen ChartPane { height: 1fr; min-height: 5; }
    """

    def __init__(self, parent: CostActions) -> None:
        super().__init__()
        self.adaptation = parent

    def compose(self) -> ComposeResult:
        yield Line(id="stages")
        yield Line(id="decision")
        yield TimelinePane(id="timeline")
        yield Line(id="here")
        yield Line(id="legend")
        yield ChartPane(id="bars")
        yield Line(id="status")
        yield KeyBar(id="keys")

    @property
    def pane(self) -> TimelinePane:
        return self.query_one(TimelinePane)

    def on_mount(self) -> None:
        self.pane.follower = self._tell
        self.adaptation.ask_timelines()
        self.query_one("#legend", Line).put(legend())
        self.fill()
        self.pane.focus()

    def on_resize(self) -> None:
        if self.is_mounted:
            self.fill()

    def facts(self) -> Facts:
        return Facts(job=self.cubridge.jobs.running)

    def costs_came(self) -> None:
        self.fill()

    def fill(self) -> None:
        """What is known by now."""
        snap = self.adaptation.snap
        if not self.is_attached or snap is None:
            return
        costs, target = self.adaptation.costs, snap.state.hashes.get("target", "")
        asked = [("expert", EXPERT), *([("target", target)] if target else [])]
        found = [(whose, costs.timelines.get(name)) for whose, name in asked]
        known = [(whose, t) for whose, t in found if t is not None and not t.problem]
        lanes = lanes_of(known)
        if lanes != self.pane.shown:
            self.pane.show(lanes)
            self.pane.styles.height = min(self.pane.virtual_size.height + 1, self.size.height // 2)
        where = costs.where
        title = f" {snap.title}: one block over time"
        title += f", {where.card}, {where.shape}" if where is not None else ""
        self.query_one("#stages", Line).put([(title, "title")])
        words = [self._state(whose, timeline) for whose, timeline in found]
        told = "; ".join(filter(None, words)) or SCHEMATIC
        self.query_one("#decision", Line).put([(f" {told}", "stale")])
        verdict = snap.state.verdict(Gate.G4)
        measured = verdict.details if verdict is not None else {}
        chart = cost_chart(costs, target, known, measured, self.size.width - 4)
        self.query_one(ChartPane).chart("units and rates", chart)
        self._tell()

    def _state(self, whose: str, timeline: Timeline | None) -> str:
        if timeline is None:
            return f"{whose} {self.adaptation.no_costs or WAITING}"
        return f"{whose}: no timeline, {timeline.problem}" if timeline.problem else ""

    def _tell(self) -> None:
        pane = self.pane
        event = pane.event
        words = words_of(pane.shown.lanes[pane.lane], event) if event is not None else ""
        self.query_one("#here", Line).put([(f" {words}", "")])

    # --- actions ---------------------------------------------------------------------------------

    def do_cost_closer(self) -> None:
        self._zoom(0.5)

    def do_cost_wider(self) -> None:
        self._zoom(2.0)

    def _zoom(self, by: float) -> None:
        if not self.pane.shown.lanes:
            self.say("there is no timeline yet", "stale")
        elif not self.pane.zoom(by):
            self.say("all of it is in sight" if by > 1 else "a cell is no finer", "stale")

    def do_cost_next_pane(self) -> None:
        self.focus_next()

    def do_cost_close(self) -> None:
        self.dismiss(None)
