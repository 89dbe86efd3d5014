"""Asking a model for the edit, for meanings of opaque ops or for a lowering.

What would be sent, the answer as it comes, every attempt's verdict.

Nothing leaves the machine before the person has seen where it goes and how much it is, and has
pressed the key that sends it. The run belongs to the session's screen: it goes on while this one
is closed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.timer import Timer

from cubridge_tui import actions
from cubridge_tui.jobs import Outcome
from cubridge_tui.model.attempts import (
    Answered,
    Look,
    attempt_rows,
    shown,
    stream_rows,
)
from cubridge_tui.model.facts import Facts
from cubridge_tui.model.live import Live
from cubridge_tui.model.rows import PaneText, Row
from cubridge_tui.model.snapshot import Snapshot
from cubridge_tui.model.topics import Topic
from cubridge_tui.screens.ask_model_question import (
    ModelState,
    Question,
    ended_words,
    in_app,
    next_action,
    next_parts,
)
from cubridge_tui.screens.base import bindings
from cubridge_tui.widgets.code_pane import CodePane
from cubridge_tui.widgets.line import Banner, KeyBar, Line
from cubridge_tui.widgets.stage_bar import StageBar

if TYPE_CHECKING:
    from cubridge_tui.screens.adaptation.evidence import EvidenceActions

__all__ = ["ModelScreen", "ModelState"]
JOB = "model"
LOOK_SECONDS = 0.1  # how often a stream is looked at


class ModelScreen(Question):
    """The attempts above, what is looked at below, two of them side by side where asked."""

    NAME = actions.MODEL
    BINDINGS = bindings(actions.MODEL)
    DEFAULT_CSS = """
    ModelScreen #attempts { height: 6; }
    ModelScreen Horizontal { height: 1fr; }
    ModelScreen #held { display: none; }
    ModelScreen CodePane { width: 1fr; }
    """

    def __init__(self, owner: EvidenceActions, state: ModelState) -> None:
        super().__init__(owner, state)
        self._timer: Timer | None = None
        self._listed = -1

    def compose(self) -> ComposeResult:
        yield StageBar(id="stages")
        yield Banner(id="banner")
        yield Line(id="decision")
        yield CodePane(id="attempts")
        with Horizontal():
            yield CodePane(id="held")
            yield CodePane(id="shown")
        yield Line(id="status")
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        self.lower.focus()
        if self.running:
            self._watch()
        elif self.state.ready is None or self.state.about is not self.snap.state:
            self._prepare()
        self.present()

    @property
    def running(self) -> bool:
        return self.cubridge.jobs.running == JOB

    @property
    def upper(self) -> CodePane:
        return self.query_one("#attempts", CodePane)

    def _stage(self) -> str:
        """How far the run is, for the conditions of actions."""
        live = self.state.live
        if self.running:
            return "waiting" if live is not None and live.waiting is not None else "running"
        if self.state.ready is not None:
            return "ready"
        return "done" if self.state.result is not None or self.state.unanswered else ""

    def facts(self) -> Facts:
        return Facts(
            job=self.cubridge.jobs.running,
            read_only=self.snap.read_only,
            asking=self._stage(),
            attempts=len(self.state.attempts),
            topics=len(self.topics),
        )

    # --- showing ---------------------------------------------------------------------------------

    def present(self) -> None:
        """Bring everything to the present state."""
        snap = self.snap
        self.query_one(StageBar).show(snap.state, snap.title, self.size.width)
        self.query_one(Banner).say(self.state.problem)
        self._list()
        if not self._showing:
            self._show_ready() if not self.running else self._stream()
        self._tell()

    def _next_key(self) -> str:
        """The key that leads on."""
        return actions.key_of(next_action(self._stage(), self.state), self.cubridge.actions)

    def on_resize(self) -> None:
        if self.is_mounted:
            self.present()

    def _list(self) -> None:
        attempts = self.state.attempts
        held = self.state.held
        mark = next((i for i, a in enumerate(attempts) if a is held), -1)
        rows = attempt_rows(attempts, mark)
        note = "no answer yet" if self.running else "nothing was asked yet"
        content = PaneText(rows, "", f"answers ({len(rows)})", note)
        if content != self.upper.content:
            self.upper.show(content)
            if len(rows) != self._listed and rows:
                self.upper.go_to(len(rows) - 1)
            self._listed = len(rows)

    def _tell(self) -> None:
        if not self.is_attached:
            return
        parts = next_parts(self._stage(), self.state, self._next_key(), self.cubridge.jobs.line)
        self.query_one("#decision", Line).put(parts)
        self.refresh_keys()

    def job_news(self) -> None:
        self._tell()

    # --- the run ---------------------------------------------------------------------------------

    def do_model_send(self) -> None:
        if self._stage() == "waiting":
            assert self.state.live is not None
            self.state.live.go_on("")
            self._stream()
            return
        if self.too_soon():
            return
        state, ready = self.state, self.state.ready
        if ready is None:  # after a run: what would be sent now, to be seen before it is
            self._showing = ""
            self._prepare()
            return
        if state.about is not self.snap.state:
            self.say("the session changed since: look again at what would be sent", "stale")
            self._prepare()
            return
        desk, owner = self.owner.open_desk, self.owner
        live = Live(self.cubridge.cancel)
        state.live, state.result, state.ready, state.held = live, None, None, None
        state.asked = ready.topic
        state.asking = replace(state.asking, topic=None, prompt=None)
        state.base = self.snap.target_text or ""

        def work() -> Snapshot:
            from cubridge_tui.model_desk import run
            from engine.cuir.printer import print_module

            if ready.topic is Topic.EDIT:
                state.base = print_module(desk.work.compose())
            try:
                state.result = run(desk, ready, live)
            finally:
                snap = desk.snapshot()
                owner.shown_between(snap)
            return snap

        def done(outcome: Outcome) -> None:
            state.problem = in_app(outcome.error) if outcome.error is not None else ""
            state.unanswered = outcome.error is not None
            if owner.is_attached:
                owner.tell()
                owner.say(
                    ended_words(outcome, self.state.result), "fail" if outcome.error else "dim"
                )
            if self.is_attached:
                self._unwatch()
                self._finished(outcome)

        self.cubridge.jobs.submit(JOB, work, done)
        self._stream()
        self._watch()
        self._tell()

    def _finished(self, outcome: Outcome) -> None:
        self.state.problem = self.state.problem if outcome.error is not None else ""
        self._listed = -1
        self._showing = "attempt"
        self.present()
        self._show_attempt()
        self.say(ended_words(outcome, self.state.result), "fail" if outcome.error else "pass")

    def _watch(self) -> None:
        if self._timer is None:
            self._timer = self.set_interval(LOOK_SECONDS, self._look)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer = None

    def _look(self) -> None:
        """A glance at the run: the stream, and attempts that ended."""
        live = self.state.live
        if live is None or not self.running:
            self._unwatch()
            return
        if len(live.attempts) != self._listed:
            self._list()
            if live.waiting is not None:
                self._showing = "attempt"
                self._show_attempt()
        if self._showing == "stream":
            self._stream()
        self._tell()

    def _stream(self) -> None:
        self._showing = "stream"
        live = self.state.live
        if live is None:
            return
        rows = stream_rows(live)
        pane = self.lower
        if rows[-1] != (pane.content.rows[-1] if pane.content.rows else Row("")) or (
            len(rows) != len(pane.content.rows)
        ):
            pane.grow(rows, "the answer as it comes")

    # --- attempts --------------------------------------------------------------------------------

    def _attempt(self) -> Answered | None:
        attempts = self.state.attempts
        at = self.upper.cursor
        return attempts[at] if 0 <= at < len(attempts) else None

    def _show_attempt(self) -> None:
        attempt = self._attempt()
        held = self.state.held
        pane = self.query_one("#held", CodePane)
        pane.display = held is not None
        if held is not None:
            pane.show(shown(held, self.state.look, self.state.base))
        if attempt is not None:
            self.lower.show(shown(attempt, self.state.look, self.state.base), keep_place=False)

    def on_code_pane_cursor_moved(self, event: CodePane.CursorMoved) -> None:
        if event.pane is self.upper and self.upper.has_focus and self.state.attempts:
            self._showing = "attempt"
            self._show_attempt()

    def do_model_look(self) -> None:
        looks = list(Look)
        if self._showing == "attempt":
            self.state.look = looks[(looks.index(self.state.look) + 1) % len(looks)]
        self._showing = "attempt"
        self._show_attempt()
        self.say(f"{self.state.look.value} of the answer under the cursor above")

    def do_model_beside(self) -> None:
        self.state.held = None if self.state.held is not None else self._attempt()
        self._showing = "attempt"
        self._list()
        self._show_attempt()
        self.upper.focus()

    # --- ends ------------------------------------------------------------------------------------

    def do_model_stop(self) -> None:
        if self.state.live is not None:
            self.state.live.go_on(None)

    def do_model_cancel(self) -> None:
        self.cubridge.jobs.stop()
        self.say("cancelling …")

    def do_model_next_pane(self) -> None:
        self._focus(1)

    def do_model_previous_pane(self) -> None:
        self._focus(-1)

    def _focus(self, step: int) -> None:
        panes = [
            p for p in (self.upper, self.query_one("#held", CodePane), self.lower) if p.display
        ]
        here = next((i for i, p in enumerate(panes) if p.has_focus), 0)
        panes[(here + step) % len(panes)].focus()

    def do_model_close(self) -> None:
        self.dismiss(None)
        self.owner.tell()  # a run that goes on is said there at once
        result = self.state.result
        if result is not None and result.proposal is not None:
            self.owner.show_proposal()
