"""Stepping: next, back, redo from here, run to the end, cancel; and why a gate failed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from cubridge_tui import places
from cubridge_tui.jobs import Outcome
from cubridge_tui.model.gates import gates_lines
from cubridge_tui.model.layout import PANES
from cubridge_tui.model.links import lifted_name
from cubridge_tui.model.next_step import Step, first_failed, owed, undecided, unlowered, unmeant
from cubridge_tui.model.rows import RowKind
from cubridge_tui.model.verdicts import Suspect, suspects, verdict_lines
from cubridge_tui.screens.adaptation.shared import Shared
from cubridge_tui.screens.dialogs import Confirm, Prompt, TextDialog
from engine.service.session.proposal_kinds import edits
from engine.types import DecisionKind, Gate, Stage, Verdict, VerdictKind

if TYPE_CHECKING:
    from engine.service.upkeep.newer import Rebase

NAMES = {
    Step.LIFT: "lift and G1",
    Step.PROPOSE: "propose",
    Step.JUDGE_TARGET: "G2",
    Step.LOWER: "lower and G3",
}
_LANDS = {
    Step.LIFT: Stage.LIFTED,
    Step.PROPOSE: Stage.TARGET,
    Step.JUDGE_TARGET: Stage.TARGET,
    Step.LOWER: Stage.LOWERED,
}


class StageActions(Shared):
    """Actions of the group Stages."""

    def do_step(self) -> None:
        assert self.snap is not None
        step = owed(self.snap.state).step
        if step is Step.ACCEPT:
            self.do_accept_kernel()
        elif step is not None:
            desk = self.open_desk
            self._unless_changed(
                NAMES[step],
                lambda anyway: self.job(
                    NAMES[step],
                    lambda: desk.step(anyway, self.shown_between),
                    lambda: self._landed(step),
                ),
            )

    def _unless_changed(self, what: str, do: Callable[[bool], None]) -> None:
        """Work on what the session holds; where the files are not that any more, after asking.

        `do` is told whether the person was asked and said yes.
        """
        changed = self.snap.changed if self.snap is not None else ""
        if not changed:
            do(False)
            return
        question = f"The {changed} changed on disk and is not taken in (! does): {what} without it?"
        self.app.push_screen(Confirm(question), lambda yes: do(True) if yes else None)

    def _landed(self, step: Step) -> None:
        """After a step: the pane that it made leads, and a proposal starts at its first hunk."""
        assert self.snap is not None
        self.grid.lead(_LANDS[step])
        self.place_panes()
        failed = first_failed(self.snap.state)
        if failed is not None:
            self.say(f"{failed.gate} failed: {failed.reason}", "fail")
        elif step is Step.LIFT and unmeant(self.snap.state):
            self._to_opaque()
        elif (told := unlowered(self.snap.state)) is not None:
            self.say(told.reason.replace("\n", " "), "stale")
        elif step is Step.PROPOSE:
            self.grid.leader.go_to(0)
            self.grid.leader.next_hunk(1)
        elif step is Step.LOWER:
            self._to_first_change()

    def _to_first_change(self) -> None:
        """The leading cursor to the first line that differs, with its op in every pane."""
        rows = self.grid.leader.content.rows
        index = next((i for i, row in enumerate(rows) if row.kind is not RowKind.SAME), None)
        if index is not None:
            self.grid.leader.go_to(index)
            self.visit(self.current_key())

    def _to_opaque(self) -> None:
        """Every pane to the first opaque op without meaning; again: to the next one."""
        assert self.snap is not None
        verdict = self.snap.state.verdict(Gate.G1)
        left = [op for op in self.snap.opaque if not op.meant]
        if not left or verdict is None:
            return
        here = self.current_opaque()
        at = next((n for n, op in enumerate(left) if here is not None and op.id == here.id), -1)
        op = left[(at + 1) % len(left)]
        self.grid.lead(Stage.LIFTED)
        self.place_panes()
        self.visit(lifted_name(op.path), leader=True)
        words = f"{op.id}, line {op.line}, is opaque: {op.reason}; M asks a model, e writes it"
        self.say(f"G1 was not run: {words}", "stale")

    def do_run(self) -> None:
        desk = self.open_desk
        self._unless_changed(
            "run",
            lambda anyway: self.job(
                "run to the end", lambda: desk.run(self.shown_between, anyway), self._ran
            ),
        )

    def _ran(self) -> None:
        """The pane of the furthest stage leads; where a decision is owed, at the first hunk."""
        assert self.snap is not None
        state = self.snap.state
        failed = first_failed(state)
        furthest = state.furthest or Stage.SOURCE
        stage = furthest if furthest in PANES else Stage.LOWERED
        if failed is not None:
            stage = {Gate.G1: Stage.LIFTED, Gate.G2: Stage.TARGET}.get(failed.gate, Stage.LOWERED)
        self.grid.lead(self.stage_to_decide() if undecided(state) else stage)
        self.place_panes()
        if owed(state).action == "ask-model" and unmeant(state):
            self._to_opaque()
        elif undecided(state):
            self.grid.leader.go_to(0)
            self.to_undecided()
        self.remark()
        told = unlowered(state)
        self.say(told.reason.replace("\n", " ") if told is not None else owed(state).words)

    def do_back(self) -> None:
        index = PANES.index(self.grid.focused_stage)
        self.grid.lead(PANES[max(index - 1, 0)])
        self.place_panes()
        self.say("looking back: nothing changed")

    def do_redo_from(self) -> None:
        stage = self.grid.focused_stage
        desk = self.open_desk
        assert self.snap is not None
        if stage is Stage.TARGET and self.snap.hunks:
            question = "Propose again? The decisions about the present hunks are dropped."
            self.app.push_screen(Confirm(question), lambda yes: self._redo(stage) if yes else None)
        elif stage is Stage.LOWERED and self.snap.target is None:
            self.say("there is no target to lower yet", "stale")
        elif desk is not None:
            self._redo(stage)

    def _redo(self, stage: Stage) -> None:
        desk = self.open_desk
        job = f"{stage.value} again"

        def redo(anyway: bool) -> None:
            self.job(
                job,
                lambda: desk.redo_from(stage, anyway, self.shown_between),
                lambda: self.say(f"{job}: done"),
            )

        def ask(anyway: bool) -> None:
            self.unless_accepted(f"make the {stage.value} again", lambda: redo(anyway))

        self._unless_changed(f"make the {stage.value} again", ask)

    def do_cancel(self) -> None:
        self.cubridge.jobs.stop()
        self.say("cancelling …")

    def do_why(self) -> None:
        """Bring every pane to what made the first failed gate fail; there, `w` goes on.

        Where none failed: every gate, with what it found or what it waits for.
        """
        if self.snap is None:
            self.say("the session is being opened")
            return
        if self.refusal is not None and self.refusal.error is not None:
            lines = str(self.refusal.error).split("\n")
            self.app.push_screen(TextDialog(f"{self.refusal.name} did not work", lines))
            return
        failed = first_failed(self.snap.state)
        if failed is None:
            if unmeant(self.snap.state) and owed(self.snap.state).action == "ask-model":
                self._to_opaque()
            else:
                self._show_gates()
            return
        self._show_suspect(failed, 0)

    def _show_suspect(self, failed: Verdict, at: int) -> None:
        """What a failed gate says, at one of the places that may have made it fail."""
        assert self.snap is not None
        found = suspects(self.snap, failed)
        at = at % len(found) if found else 0
        if found:
            self._go_to_suspect(found[at], failed.gate)
        self.say(
            f"{failed.reason} — {found[at].words if found else 'no hunk was left out'}", "fail"
        )
        lines = verdict_lines(self.snap, failed, at)
        answers = self._ways_out(found[at].hunk if found else "", len(found))

        def answered(key: str | None) -> None:
            if key == "w":
                self._show_suspect(failed, at + 1)
            else:
                self._way_out(key)

        self.app.push_screen(TextDialog(f"{failed.gate} failed", lines, answers=answers), answered)

    def _show_gates(self) -> None:
        assert self.snap is not None
        lines = gates_lines(self.snap, self.cubridge.jobs.running)
        self.app.push_screen(TextDialog("gates", lines))

    def _go_to_suspect(self, suspect: Suspect, gate: Gate) -> None:
        where = {Gate.G1: Stage.LIFTED, Gate.G3: Stage.LOWERED}.get(gate, Stage.TARGET)
        self.grid.lead(Stage.TARGET if suspect.hunk else where)
        self.place_panes()
        rows = self.grid.leader.content.rows
        index = next((i for i, r in enumerate(rows) if suspect.hunk and r.hunk == suspect.hunk), -1)
        if index < 0:
            self.visit(suspect.key, leader=True)
            return
        self.visit(suspect.key)
        self.grid.leader.go_to(index)

    def _ways_out(self, hunk: str, count: int) -> list[tuple[str, str]]:
        """What can be done about it from here, by key."""
        assert self.snap is not None
        out = [("w", f"next of {count} suspects")] if count > 1 else []
        out.append(("g", "all gates"))
        if self.snap.read_only:
            return out
        if hunk and not self.snap.diff_blocked:
            out.append(("a", f"accepts {hunk} as proposed"))
        if self.snap.undo_words:
            out.append(("u", f"undoes: {self.snap.undo_words.split(' (')[0]}"))
        return out

    def _way_out(self, key: str | None) -> None:
        if key == "g":
            self._show_gates()
        elif key == "u":
            self.do_undo()
        elif key == "a" and self.snap is not None:
            name, desk = self.current_hunk(), self.open_desk
            decide = partial(desk.decide, name, DecisionKind.ACCEPTED)
            words = f"{name} accepted as proposed: s runs the gate again"
            self.unless_accepted(
                f"accept {name}",
                lambda: self.keep("decide", decide, lambda: self.say(words)),
            )

    def do_override(self) -> None:
        assert self.snap is not None
        state = self.snap.state
        open_ = next(
            (v for v in state.verdicts if v.kind in (VerdictKind.FAIL, VerdictKind.NOT_RUN)
             and v.gate is not Gate.G4), None,
        )  # fmt: skip
        if open_ is None:
            self.say("no gate to override: none failed, and none was left out", "stale")
            return
        desk = self.open_desk

        def given(reason: str | None) -> None:
            if reason:
                self.keep("override", lambda: desk.override(open_.gate, reason))

        title = f"Override {open_.gate} ({open_.kind}) in your name. The reason, for the record:"
        self.app.push_screen(
            Prompt(title, check=lambda t: "" if t.strip() else "a reason is needed"), given
        )

    def do_accept_kernel(self) -> None:
        from cubridge_tui.screens.accept import AcceptScreen

        self.app.push_screen(AcceptScreen(self))

    def do_take_in(self) -> None:
        assert self.snap is not None
        desk, changed, state = self.open_desk, self.snap.changed, self.snap.state

        def take() -> None:
            self.refusal = None  # what was refused is what the session has no more
            self.keep("take in", desk.take_in, told)

        def told() -> None:
            assert self.snap is not None
            again = self.snap.changed
            if again:
                self.say(f"the {again} changed again meanwhile: ! takes it in", "stale")
            else:
                self.say(f"the changed {changed} is taken in: what was made before is stale")

        if changed == "kernel" and edits(state.proposals) and state.outdated(Stage.TARGET) is None:
            self._look_at_newer(None, take)  # what was decided need not be lost
        else:
            self.unless_accepted(f"take in the changed {changed}", take)

    def do_rebase(self) -> None:
        """Ask which version; show what would be carried over and what asked; then do it."""
        assert self.snap is not None
        title = "The kernel's new version: a CUDA source, a package's folder or a bundled kernel"
        check = lambda text: "" if text.strip() else "name one"  # noqa: E731
        here = self.open_desk.work.package.file
        self.app.push_screen(
            Prompt(title, here, check), lambda path: self._look_at_newer(path) if path else None
        )

    def _look_at_newer(self, path: str | None, otherwise: Callable[[], None] | None = None) -> None:
        """Show what a version of the kernel would be: that at a path, or that on the disk now;
        where nothing can be carried over to it, offer `otherwise`."""
        desk = self.open_desk

        def shown(outcome: Outcome) -> None:
            made = outcome.value
            if not self.is_attached:
                return
            if made is None:
                why = str(outcome.error or "cancelled").replace("\n", " ")
                self.say(why, "fail")
                if otherwise is not None and outcome.error is not None:
                    question = f"{why}. Take it in all the same? Its hunks turn stale"
                    ask = Confirm(question)
                    self.app.push_screen(ask, lambda yes: otherwise() if yes else None)
                return
            self.app.push_screen(
                TextDialog("rebase", made.lines(), answers=[("r", "does it")]),
                lambda key: self._rebase(made) if key == "r" else None,
            )

        self.cubridge.jobs.submit("rebase", lambda: desk.newer(path), shown)

    def _rebase(self, made: Rebase) -> None:
        desk = self.open_desk

        def told() -> None:
            self.refusal = None  # what was refused is what the session has no more
            assert self.snap is not None
            self.grid.lead(self.stage_to_decide() if made.asked else Stage.LIFTED)
            self.place_panes()
            if made.asked:
                self.to_undecided()
            self.say(made.lines()[-1])

        self.unless_accepted("rebase", lambda: self.keep("rebase", lambda: desk.rebase(made), told))

    def do_fork(self) -> None:
        """A session of one's own that begins with this history."""
        app, session = self.cubridge, self.session
        if self.unsaved:
            self.say(f"{self.unsaved} events are not saved yet: a copy would lack them", "stale")
            return

        def forked(outcome: Outcome) -> None:
            if not self.is_attached:
                return  # left meanwhile: the start screen lists the copy
            if isinstance(outcome.value, str) and self.app.screen is not self:
                self.say(f"{outcome.value} is a copy of {session}: B shows both")
            elif isinstance(outcome.value, str):
                self.leave()
                places.save(outcome.value, places.load(session))
                self.dismiss(None)
                said = f"this is a copy of {session}, which stays as it was: B shows both"
                app.open_session(outcome.value, said)
            elif outcome.error is not None:
                self.say(str(outcome.error).replace("\n", " "), "fail")

        app.jobs.submit(
            "copy", lambda: app.store.fork(session, actor=app.actor), forked, quiet=True, keeps=True
        )

    def do_start_screen(self) -> None:
        def leave() -> None:
            self.leave()
            self.dismiss(None)

        if self.unsaved:
            question = f"{self.unsaved} events are not saved and would be lost. Leave?"
            self.app.push_screen(Confirm(question), lambda yes: leave() if yes else None)
        else:
            leave()
