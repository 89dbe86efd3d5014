"""The one step that touches the person's own repository: shown as a diff, then done or not."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.binding import Binding

from cubridge_tui.jobs import Jobs, Outcome, elapsed
from cubridge_tui.model.rows import PaneText, Row
from cubridge_tui.screens.closing import ClosingScreen
from cubridge_tui.screens.dialogs import TextDialog
from cubridge_tui.text.sanitise import visible_lines
from cubridge_tui.widgets.code_pane import CodePane
from cubridge_tui.widgets.line import Line
from engine.types import Stage
from sessions.events import Committed
from sessions.user_repository import CommitPlan, carry_out, plan_commit

if TYPE_CHECKING:
    from cubridge_tui.screens.adaptation.shared import Shared


NOTE = (
    "An expert attention kernel adapted to a spec by CuBridge. The comments in the CUDA source\n"
    "are the expert's own; the README says what it computes now, and how far that is proven."
)


class CommitScreen(ClosingScreen[None], inherit_bindings=False):
    """Plan, show, do. Named paths only; hooks, identity and signing are the person's own."""

    BINDINGS = [
        Binding("escape,q", "leave", "back", show=False),
        Binding("C", "commit", "commit", show=False),
    ]

    def __init__(self, adaptation: Shared, path: Path) -> None:
        super().__init__()
        self._adaptation, self._path = adaptation, path
        self._plan: CommitPlan | None = None
        self._done = False
        self._since: float | None = None  # git runs, and the person's hooks with it

    def compose(self) -> ComposeResult:
        yield Line(id="stages")
        yield Line(id="decision")
        yield CodePane(id="diff")
        yield Line(id="status")

    def on_mount(self) -> None:
        self.query_one("#stages", Line).put([(" commit into your own repository", "title")])
        self.query_one("#decision", Line).put([(" looking at the repository …", "dim")])
        self.query_one(CodePane).focus()
        self._jobs.submit("plan", self._make_plan, self._planned, quiet=True)
        self.set_interval(1.0, self._tell_running)

    @property
    def _jobs(self) -> Jobs:
        return self._adaptation.cubridge.jobs

    def _make_plan(self) -> CommitPlan:
        desk = self._adaptation.open_desk
        state = desk.work.state
        lowered = desk.work.session.artifact(Stage.LOWERED)
        from engine.service.session.package_export import committed_files

        return plan_commit(
            committed_files(desk.work, self._path), title=state.title, session=desk.id,
            level=state.accepted_level, sha256=lowered.sha256, note=NOTE,
        )  # fmt: skip

    def _planned(self, outcome: Outcome) -> None:
        if not self.is_attached:
            return
        if outcome.error is not None or not isinstance(outcome.value, CommitPlan):
            self._refused(outcome, "#decision")
            return
        plan = self._plan = outcome.value
        head = [f"repository {plan.repository}", f"branch     {plan.branch or '(detached HEAD)'}"]
        head += [f"file       {name}" for name in plan.files]
        head += [f"note       {warning}" for warning in plan.warnings]
        head += ["", *plan.message.split("\n"), ""]
        rows = [Row(line) for line in (*head, *visible_lines(plan.diff))]
        self.query_one(CodePane).show(PaneText(rows, "diff", "what will be committed"))
        self._tell_plan()

    def _tell_plan(self) -> None:
        ways = [("esc", "key"), (" leaves", "dim")]
        plan = [(" C", "key"), (" commits exactly this  ", "title")]
        self.query_one("#decision", Line).put([*plan, *ways])

    def _refused(self, outcome: Outcome, line: str) -> None:
        """Say why it did not work; the whole error with its fix in a dialog, wrapped."""
        error = outcome.error
        self.query_one(line, Line).put([(f" {error.message if error else 'cancelled'}", "fail")])
        if error is not None:
            title = f"{outcome.name} did not work"
            self.app.push_screen(TextDialog(title, str(error).split("\n")))

    def action_commit(self) -> None:
        if self._plan is None or self._done:
            why = "it is committed already" if self._done else "there is no plan to carry out: esc"
            self.query_one("#status", Line).put([(f" {why}", "stale")])
            return
        self._done, self._since = True, time.monotonic()
        self._tell_running()
        plan, desk = self._plan, self._adaptation.open_desk

        def work() -> str:
            commit = carry_out(plan)
            paths = ", ".join(plan.files)
            desk.writer.append([Committed(str(plan.repository), paths, commit)], actor=desk.actor)
            return commit

        self._jobs.submit("commit", work, self._committed, quiet=True, keeps=True)

    def _tell_running(self) -> None:
        """That git runs; the person's hooks may take any time."""
        if self._since is not None:
            words = " committing: git and your hooks run  "
            ran = elapsed(time.monotonic() - self._since)
            ways = [("esc", "key"), (" leaves, and it goes on ", "dim")]
            self.query_one("#decision", Line).put([(words, "title"), (ran, "dim")], ways)

    def action_leave(self) -> None:
        if self._since is not None:
            self._adaptation.cubridge.say("commit: under way")
        self.dismiss(None)

    def _committed(self, outcome: Outcome) -> None:
        self._since = None
        if not self.is_attached:  # left while git ran: the page that is there now says it
            wrong = str(outcome.error or "cancelled").replace("\n", " ")
            if isinstance(outcome.value, str):
                self._adaptation.cubridge.say(f"committed as {outcome.value}", "pass")
            else:
                self._adaptation.cubridge.say(f"not committed: {wrong}", "fail")
            return
        line = self.query_one("#status", Line)
        if outcome.error is not None:
            self._done = False
            self._tell_plan()
            self._refused(outcome, "#status")
        else:
            where = self._plan.branch if self._plan is not None else None
            done = f" committed as {outcome.value}" + (f" on {where}" if where else "")
            line.put([(done, "pass")])
            pane = self.query_one(CodePane)
            pane.show(replace(pane.content, title="what was committed"))
            self.query_one("#decision", Line).put(
                [(" Done: ", "pass"), ("esc", "key"), (" goes back to the kernel", "title")]
            )
