"""The adaptation screen itself: what it holds, and how a snapshot reaches its widgets."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from textual.app import ComposeResult
from textual.geometry import Region
from textual.strip import Strip

from cubridge_tui import actions, places
from cubridge_tui.desk import Desk
from cubridge_tui.jobs import Outcome
from cubridge_tui.model.costs import bar_words
from cubridge_tui.model.facts import Facts
from cubridge_tui.model.layout import PANES, Wish
from cubridge_tui.model.next_step import Owed, Step, owed, owed_now
from cubridge_tui.model.rows import RowKind
from cubridge_tui.model.snapshot import Snapshot, View
from cubridge_tui.model.story import news
from cubridge_tui.screens.adaptation.costs import CostActions
from cubridge_tui.screens.adaptation.evidence import EvidenceActions
from cubridge_tui.screens.adaptation.facts import facts_of
from cubridge_tui.screens.adaptation.panes import PaneActions
from cubridge_tui.screens.adaptation.review import ReviewActions
from cubridge_tui.screens.adaptation.stages import StageActions
from cubridge_tui.screens.base import bindings
from cubridge_tui.widgets.backdrop import backdrop
from cubridge_tui.widgets.code_pane import CodePane
from cubridge_tui.widgets.line import Banner, KeyBar, Line, Part
from cubridge_tui.widgets.pane_grid import PaneGrid
from cubridge_tui.widgets.stage_bar import StageBar
from engine.service.session.adaptation import Beginning
from engine.types import Stage

LOOK_SECONDS = 3.0  # how often files on disk, other writers and unsaved events are looked at
LENT_SECONDS = 0.25  # how often it is tried to write again, after another process was let


class AdaptationScreen(CostActions, StageActions, ReviewActions, PaneActions, EvidenceActions):
    """One session: step, review, decide, accept."""

    NAME = actions.ADAPTATION
    BINDINGS = bindings(actions.ADAPTATION)

    def __init__(self, session: str | Beginning, said: str = "") -> None:
        super().__init__()
        self._asked, self._said = session, said
        self.session = session if isinstance(session, str) else ""
        self.desk: Desk | None = None
        self.snap: Snapshot | None = None
        self.place = places.load(self.session)
        self.wish = Wish(self.place.pair, self.place.zoom)
        self.mask_values = dict(self.place.values)
        self.view = View.OPS
        self.words = ""

    def compose(self) -> ComposeResult:
        yield StageBar(id="stages")
        yield Banner(id="banner")
        yield Line(id="decision")
        yield PaneGrid()
        yield Line(id="strip")
        yield Line(id="status")
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        wanted = self.place.view or self.cubridge.config["view"]
        self.view = next((v for v in View if v.value == wanted), View.OPS)
        self.grid = self.query_one(PaneGrid)
        for pane in self.grid.panes.values():
            pane.follower = partial(self._followed, pane)
        self.grid.lead(next((s for s in PANES if s.value == self.place.focus), Stage.SOURCE))
        self.place_panes()
        self.query_one("#decision", Line).put([(" opening …", "dim")])
        self.job("open", self._open, lambda: self.say(self._said), quiet=True)
        self.set_interval(LOOK_SECONDS, self._look)

    def render_lines(self, crop: Region) -> list[Strip]:
        return backdrop(self, crop)

    def on_unmount(self) -> None:
        self.keep_place()
        self.end_costs()

    def _open(self) -> Snapshot:
        app = self.cubridge
        self.desk = Desk(app.bench, self._asked, app.actor, self.place.drafts)
        return self.desk.snapshot()

    # --- jobs ------------------------------------------------------------------------------------

    def job(
        self,
        name: str,
        work: Callable[[], Any],
        then: Callable[[], None] | None = None,
        *,
        quiet: bool = False,
        keeps: bool = False,
    ) -> None:
        """Do something on the jobs' thread and show what it gives."""

        def done(outcome: Outcome) -> None:
            if not self.is_attached:
                if keeps and outcome.error is not None:
                    self.cubridge.say(str(outcome.error).replace("\n", " "), "fail")
                return
            if isinstance(outcome.value, Snapshot):
                self.show(outcome.value)
            if not quiet:
                self.refusal = outcome if outcome.error is not None else None
            if outcome.error is not None:
                self.failed(outcome)
            elif outcome.cancelled:
                self.say(f"{outcome.name} was cancelled; steps that had ended are kept", "stale")
            elif then is not None:
                then()
            self.tell()

        self.cubridge.jobs.submit(name, work, done, quiet=quiet, keeps=keeps)
        self.tell()

    def failed(self, outcome: Outcome) -> None:
        """An error of a job: said, and what did happen before it is shown."""
        assert outcome.error is not None
        if self.desk is None:
            self.query_one(Banner).say(outcome.error.message)
            words = str(outcome.error).replace("\n", " ")
            self.query_one("#decision", Line).put([(f" {words}", "fail")])
        else:
            self.job("look", self.desk.snapshot, quiet=True)
        self.say(str(outcome.error).replace("\n", " "), "fail")

    def shown_between(self, snap: Snapshot) -> None:
        """A state in the middle of a job, from its thread."""
        with contextlib.suppress(Exception):
            self.app.call_later(self.show, snap)

    def _look(self) -> None:
        desk = self.desk
        self.keep_place()  # a killed app opens here again
        if desk is None or self.cubridge.jobs.busy:
            return
        if desk.writer.read_only is not None or desk.writer.pending or desk.writer.awaited:
            before = self.snap.read_only if self.snap is not None else ""
            count = self.snap.state.count if self.snap is not None else 0

            unsaved = self.unsaved

            def told() -> None:
                self._told_of_others(desk, before, count)
                if unsaved and not self.unsaved:  # in place of what was said of them
                    self.cubridge.say(f"saved now: {unsaved} events")

            self.job("look", desk.poll, told, quiet=True)
        elif self.snap is not None and self._disk() != self.seen_disk:
            self.seen_disk = self._disk()
            self.job("look", desk.snapshot, quiet=True)

    def _told_of_others(self, desk: Desk, before: str, count: int) -> None:
        """Say who writes now, where that changed, and what the other one wrote."""
        if self.snap is None:
            return
        if not before and self.snap.read_only:
            self._lent = True
        elif before and not self.snap.read_only:
            new = news(desk.writer.events[count:])
            gone = "" if self._lent else f"the other one is gone ({before}): this one writes now"
            self._lent = False
            self.say(gone or new)
        if self._lent:
            self.set_timer(LENT_SECONDS, self._look)

    def _act_after_others(self, id: str) -> None:
        """Write again, and act, unless there is something new to see."""
        desk, count = self.open_desk, self.snap.state.count if self.snap is not None else 0
        before = self.snap.read_only if self.snap is not None else ""

        def act() -> None:
            self._told_of_others(desk, before, count)
            if self.snap is not None and self.snap.state.count == count:
                super(AdaptationScreen, self).action_act(id)

        self.job("look", desk.take_back, act, quiet=True)

    seen_disk: tuple[Any, ...] = ()
    _lent = False  # to a process that asked for it
    _keyed: Facts | None = None  # what the footer was made from
    _last_owed: tuple[Snapshot, str, Owed] | None = None
    _barred: tuple[Snapshot | None, int] = (None, 0)
    _facts: tuple[Snapshot | None, Facts] = (None, Facts())  # those of a snapshot, asked often

    def _disk(self) -> tuple[Any, ...]:
        """When the files that the session was made from were last written."""
        assert self.desk is not None
        out = []
        for path in (self.desk.work.spec, Path(self.desk.work.package.file)):
            try:
                stat = path.stat()
                out.append((stat.st_mtime_ns, stat.st_size))
            except OSError:
                out.append((0, 0))
        return tuple(out)

    def action_act(self, id: str) -> None:
        """As everywhere; but what depends on the files on disk looks at them first, and where
        another process was let write, what it wrote is shown before a key is about it."""
        if self._lent and not self.cubridge.jobs.running:
            self._act_after_others(id)
            return
        if self.snap is None and self.cubridge.jobs.busy:
            action = next(a for a in self.cubridge.actions if a.id == id)
            if action.when(self.facts()):  # a reason that would be about an empty session
                self.say("the session is being opened")
                return
        snap, now = self.snap, self._disk() if self.desk is not None else ()
        looks = id in ("take-in", "run", "redo-from") or (
            # reading the spec refuses by itself, with the reason kept for w
            id == "step" and snap is not None and owed(snap.state).step is not Step.PROPOSE
        )
        if snap is None or not looks or now == self.seen_disk or self.cubridge.jobs.running:
            super().action_act(id)
            return
        self.seen_disk = now
        act = partial(super().action_act, id)
        self.job("look", self.open_desk.snapshot, act, quiet=True)

    def job_news(self) -> None:
        self.tell()

    # --- showing ---------------------------------------------------------------------------------

    def show(self, snap: Snapshot) -> None:
        """Show a state of the session."""
        if not self.is_attached:
            return
        first, self.snap = self.snap is None, snap
        self.session = snap.session
        self.seen_at = time.monotonic()
        if first:
            self.seen_disk = self._disk()
        self.place_panes()
        self.grid.show(dict(snap.panes[self.view]), aligned=self.view is View.TEXT)
        if first:
            for stage, number in self.place.cursors.items():
                if stage in {s.value for s in PANES}:
                    self.grid.panes[Stage(stage)].go_to_line(number)
            self._to_head(self.place.hunk)
        self.remark()
        self.tell()
        self.ask_costs()

    def _to_head(self, hunk: str) -> None:
        """The leading cursor to a hunk's head line, if there is one."""
        rows = self.grid.leader.content.rows
        heads = (i for i, r in enumerate(rows) if r.kind is RowKind.HEAD and hunk == r.hunk)
        index = next(heads, None) if hunk else None
        if index is not None:
            self.grid.leader.go_to(index)

    def facts(self) -> Facts:
        snap, job = self.snap, self.cubridge.jobs.running
        if snap is None:
            return Facts(job=job)
        if self._facts[0] is not snap:
            self._facts = (snap, facts_of(snap))
        hunk, here = self.current_hunk(), self.current_opaque()
        others = (*snap.meanings, *snap.regions)
        target = bool(hunk) or all(d is not None for _, _, d in others)
        return replace(
            self._facts[1], job=job, hunk=hunk, refused=self._refused, search=self.words,
            opaque=here.id if here is not None else "",
            diff_blocked=snap.blocked(hunk) if target else "",
        )  # fmt: skip

    @property
    def _refused(self) -> str:
        return self.refusal.name if self.refusal is not None else ""

    def _owed(self, snap: Snapshot) -> Owed:
        """What is owed in a state, worked out once (0.5 ms)."""
        kept, refused = self._last_owed, self._refused
        if kept is None or kept[0] is not snap or kept[1] != refused:
            owes = owed_now(snap.state, snap.changed, refused, snap.waiting_drafts)
            kept = self._last_owed = (snap, refused, owes)
        return kept[2]

    def tell(self) -> None:
        """Stage bar, banner, decision line, strip and footer for the present state."""
        if not self.is_attached:
            return
        snap, jobs = self.snap, self.cubridge.jobs
        if snap is not None:
            before, width = self._barred
            if before is not snap or width != self.size.width:
                # A job's progress changes nothing of it.
                self._barred = (snap, self.size.width)
                cost = bar_words(snap.costs, snap.state.hashes.get(Stage.TARGET.value, ""))
                bar = self.query_one(StageBar)
                bar.show(snap.state, snap.title, self.size.width, cost)
            self.query_one(Banner).say(self._banner(snap))
        left: list[Part] = []
        if jobs.running:
            left = [(f" {jobs.running} ", "title"), (jobs.line, "dim")]
            self.query_one("#decision", Line).put(left, [("ctrl+c", "key"), (" cancels ", "dim")])
        elif snap is not None:
            step = self._owed(snap)
            key = actions.key_of(step.action, self.cubridge.actions)
            if snap.read_only:
                left = [(" Read-only: ", "stale"), (step.words, "dim")]
            else:
                left = [(" Next: ", "dim"), (key, "key"), (f"  {step.words}", "title")]
            # Until something was proposed there are no hunks to see in one way or another.
            right = [(f"{self.view.value} ", "dim")] if snap.hunks else []
            self.query_one("#decision", Line).put(left, right)
        self._strip()
        self.refresh_keys()

    def _banner(self, snap: Snapshot) -> str:
        if snap.pending:
            return (
                f"NOT SAVED: {snap.pending} events wait in memory, the store cannot be written; "
                "it is tried again by itself"
            )
        if snap.read_only:
            return f"READ-ONLY: {snap.read_only}; followed live, and this one writes once it ends"
        if snap.changed:
            return (
                f"The {snap.changed} changed on disk since this session took it in: ! takes it in"
            )
        return "  ".join(snap.notices)

    def _strip(self) -> None:
        """The panes that are out of sight, by name."""
        shown = self.layout_now()
        strip = self.query_one("#strip", Line)
        if strip.display != bool(shown.hidden):
            strip.display = bool(shown.hidden)
        if not shown.hidden:
            return  # what changes out of sight makes Textual arrange the whole screen again
        parts: list[Part] = [(" tab ", "key")]
        for stage in PANES:
            here = stage is self.grid.focused_stage
            parts.append((f" {'▶' if here else ' '}{stage.value} ", "title" if here else "dim"))
        pairs = [(f" {n}", "key") for n in range(1, 5)]
        pairs += [(" pairs ", "dim"), ("0", "key"), (" all ", "dim")]
        wide = self.size.width >= 120
        strip.put(parts, pairs if wide else [])

    @property
    def unsaved(self) -> int:
        return len(self.desk.writer.pending) if self.desk is not None else 0

    # --- places ----------------------------------------------------------------------------------

    def keep_place(self) -> None:
        """Remember where the person is in this session."""
        if self.snap is None or self.desk is None or not self.session:
            return
        cursors = {
            stage.value: number
            for stage, pane in self.grid.panes.items()
            if (number := pane.line) is not None
        }
        row = self.grid.leader.row
        hunk = row.hunk if row is not None and row.kind is RowKind.HEAD else ""
        place = places.Place(
            self.grid.focused_stage.value, self.view.value, self.wish.pair, self.wish.zoom,
            cursors, dict(self.desk.builder.drafts), hunk, dict(self.mask_values),
        )  # fmt: skip
        if (self.session, place) != self._kept:
            self._kept = (self.session, place)
            places.save(self.session, place)

    _kept: tuple[str, places.Place | None] = ("", None)

    def leave(self) -> None:
        """Give the session back."""
        self.keep_place()
        self.end_costs()
        desk, self.desk = self.desk, None

        def closed(outcome: Outcome) -> None:
            if outcome.error is not None:
                self.cubridge.say(str(outcome.error).replace("\n", " "), "fail")

        if desk is not None:
            self.cubridge.jobs.submit("close", desk.close, closed, quiet=True)

    def on_resize(self) -> None:
        self.place_panes()
        self.tell()

    def on_code_pane_cursor_moved(self, event: CodePane.CursorMoved) -> None:
        if event.pane is self.grid.leader and event.pane.has_focus:
            self.place_panes()
            self._strip()
        self._followed(event.pane)

    def _followed(self, pane: CodePane) -> None:
        """What the leading cursor stands on now is marked everywhere, and has its own keys."""
        if pane is self.grid.leader:
            self.remark()
            if self.follows and pane.has_focus:
                self.grid.follow(self.current_key(), self.grid.focused_stage)
            self.refresh_keys()
            self.look_first(self.current_hunk())

    def on_screen_suspend(self) -> None:
        self._keyed = None

    def refresh_keys(self) -> None:
        facts = self.facts()
        if self.is_active and facts != self._keyed:  # most keys change none of them
            self._keyed = facts
            super().refresh_keys()
