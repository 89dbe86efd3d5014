"""What decisions cost, asked for beside everything else and shown as it comes."""

from __future__ import annotations

from dataclasses import replace

from textual.timer import Timer

from cubridge_tui.model.costs import NONE, Costs
from cubridge_tui.screens.adaptation.shared import Shared
from engine.cost.timeline.events import Timeline
from engine.gates.outcome import Trial
from engine.service.views.costing import EXPERT, Cost, Costing, Question, Where
from engine.types import Stage

ASK_AFTER = 1.5  # seconds that a proposal has been looked at
SHOW_AFTER = 0.5  # seconds in which what comes is shown together
TIMELINE = "timeline "  # before a name: whose timeline


class CostActions(Shared):
    """Keeps one process that predicts, for the proposal that is shown."""

    _question: Question | None = None
    _costing: Costing | None = None
    _ask: Timer | None = None
    _tell: Timer | None = None
    _costed = ""  # the target whose cost was asked for last
    costs: Costs = NONE

    def ask_costs(self) -> None:
        """After a change: begin with another proposal, or ask for the target as it is now."""
        snap = self.snap
        if snap is None:
            return
        if snap.question is not self._question:
            self.end_costs()
            self._question = snap.question
            if snap.question is not None:
                self._ask = self.set_timer(ASK_AFTER, self._begin_costs)
        elif self._costing is not None:
            self._ask_now()

    def end_costs(self) -> None:
        """No more is asked, and nothing known is kept: it was about another proposal."""
        costing, self._costing = self._costing, None
        if costing is not None:
            costing.close()
        for timer in (self._ask, self._tell):
            if timer is not None:
                timer.stop()
        self._ask = self._tell = None
        self._question, self._costed = None, ""
        self._keep(NONE)

    def _begin_costs(self) -> None:
        if self._question is not None and self._costing is None and self.is_attached:
            post = self.cubridge._post
            self._costing = Costing(self._question, lambda n, c: post(self._come, n, c))
            self._ask_now()

    def _ask_now(self) -> None:
        snap, costing = self.snap, self._costing
        assert snap is not None and costing is not None
        name = snap.state.hashes.get(Stage.TARGET.value, "")
        if name and name != self._costed:
            self._costed = name
            if name not in self.costs.of:
                costing.now(name, snap.target_text)

    def look_first(self, hunk: str) -> None:
        """Somebody looks at a hunk: its cost and its trial come before the others'."""
        name = hunk.partition("/")[2]
        if self._costing is not None and name and not self.costs.whole(name):
            self._costing.first(name)

    @property
    def no_costs(self) -> str:
        """Why nothing is predicted; empty where it is."""
        if self.snap is not None and self.snap.executed:
            return "is not predicted: the cost model reads CuIR, and of this kernel there is none"
        return "" if self._question is not None else "is not predicted: nothing is proposed"

    def do_cost(self) -> None:
        from cubridge_tui.screens.adaptation.cost_screen import CostScreen

        self.app.push_screen(CostScreen(self))

    def ask_timelines(self) -> None:
        """Somebody looks at timelines: the expert's, and the target's as it is now."""
        if self._costing is None and self._ask is not None:
            self._ask.stop()
            self._begin_costs()
        snap, costing = self.snap, self._costing
        if snap is None or costing is None:
            return
        targets = {EXPERT: "", snap.state.hashes.get(Stage.TARGET.value, ""): snap.target_text}
        for name, text in targets.items():
            if name and name not in self.costs.timelines and (name == EXPERT or text):
                costing.timeline(f"{TIMELINE}{name}", text)

    def _come(self, name: str, found: Cost | Where | Timeline | Trial) -> None:
        if not self.is_attached or self._costing is None:
            return
        if isinstance(found, Where):
            self._keep(replace(self.costs, where=found))
        elif isinstance(found, Timeline):
            timelines = {**self.costs.timelines, name.removeprefix(TIMELINE): found}
            self._keep(replace(self.costs, timelines=timelines))
        elif isinstance(found, Trial):
            self._keep(replace(self.costs, tried={**self.costs.tried, name: found}))
        else:
            self._keep(replace(self.costs, of={**self.costs.of, name: found}))
        if self._tell is None:
            self._tell = self.set_timer(SHOW_AFTER, self._show_costs)

    def _keep(self, costs: Costs) -> None:
        self.costs = costs
        if self.desk is not None:
            self.desk.builder.costs = costs

    def _show_costs(self) -> None:
        self._tell = None
        if self.snap is not None and self.is_attached:
            self.snap = self.snap.with_costs(self.costs)
            self.grid.show(dict(self.snap.panes[self.view]), aligned=self.grid.aligned)
            self.remark()
            self.tell()
            for screen in self.app.screen_stack:
                if screen is not self and hasattr(screen, "costs_came"):
                    screen.costs_came()
