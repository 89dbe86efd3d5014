"""Replay: saved sessions play read-only; any step can be the beginning of a new session."""

from __future__ import annotations

from dataclasses import dataclass

from textual.app import ComposeResult
from textual.timer import Timer

from cubridge_tui import actions, places
from cubridge_tui.jobs import Outcome
from cubridge_tui.model.facts import Facts
from cubridge_tui.model.replay import SPEEDS, Tape, next_decision
from cubridge_tui.screens.base import ActionScreen, bindings
from cubridge_tui.screens.dialogs import Confirm
from cubridge_tui.widgets.code_pane import CodePane
from cubridge_tui.widgets.line import Banner, KeyBar, Line, Part
from cubridge_tui.widgets.replay_deck import ReplayDeck
from engine.types import Stage
from sessions.replay import Step
from sessions.session import Session
from sessions.state import SessionState

_NORMAL = 1  # index in SPEEDS


@dataclass(frozen=True, slots=True)
class Loaded:
    """A session with its tape, made off the UI's thread."""

    session: Session
    tape: Tape


class ReplayScreen(ActionScreen):
    """One session. Nothing here writes to it."""

    NAME = actions.REPLAY
    BINDINGS = bindings(actions.REPLAY)

    def __init__(self, session: str) -> None:
        super().__init__()
        self.session = session
        self.deck: ReplayDeck | None = None  # once the history is read
        self._speed = _NORMAL
        self._timer: Timer | None = None
        self._continues: SessionState | None = None  # what a new session begins with

    def compose(self) -> ComposeResult:
        yield Banner(id="banner")
        yield Line(id="decision")
        yield Line(id="status")
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        store = self.cubridge.store

        def work() -> Loaded:
            found = store.load(self.session)
            return Loaded(found, Tape.of(found.id, found.events))

        self.query_one("#decision", Line).put([(" reading the history …", "dim")])
        self.cubridge.jobs.submit("replay", work, self._loaded, quiet=True)

    def facts(self) -> Facts:
        return Facts(job=self.cubridge.jobs.running)

    # --- loading ---------------------------------------------------------------------------------

    def _loaded(self, outcome: Outcome) -> None:
        if not self.is_attached:
            return
        if not isinstance(outcome.value, Loaded):
            why = str(outcome.error or "cancelled").replace("\n", " ")
            self.query_one(Banner).say(why)
            self._tell()
            return
        self.deck = ReplayDeck(outcome.value.session, outcome.value.tape)
        self.mount(self.deck, after="#decision")
        notices = outcome.value.session.notices
        if notices:
            self.query_one(Banner).say("  ".join(notices))

    def _tell(self) -> None:
        if not self.is_attached:
            return
        parts: list[Part] = [(" REPLAY ", "banner")]
        deck = self.deck
        playing = self._timer is not None
        if deck is not None and not playing:
            on = "replay-fork" if self._at_end else "replay-step"
            words = " continues from here " if self._at_end else " steps on "
            parts += [(" Next: ", "dim"), (actions.key_of(on, self.cubridge.actions), "key")]
            parts.append((words, "title"))
        parts.append((" read-only ", "dim"))
        if deck is not None:
            total = len(deck.tape.steps)
            parts.append((f" step {min(deck.position + 1, total)} of {total} ", "title"))
        pace = SPEEDS[self._speed]
        speed = f"{'▶ playing' if playing else 'Ⅱ'} {pace:g} step{'s' * (pace != 1)}/s "
        parts.append((speed, "key" if playing else "dim"))
        self.query_one("#decision", Line).put(parts)
        self.refresh_keys()

    def on_replay_deck_moved(self, event: ReplayDeck.Moved) -> None:
        if not isinstance(self.focused, CodePane):
            event.deck.steps.focus()
        self._tell()

    # --- moving ----------------------------------------------------------------------------------

    def do_replay_step(self) -> None:
        self._stop()
        self._step(1)
        self._tell()

    def do_replay_back(self) -> None:
        self._stop()
        self._step(-1)
        self._tell()

    def _step(self, step: int) -> None:
        deck = self.deck
        if deck is None:
            return
        before = deck.position
        deck.go(before + step)
        if before == deck.position:
            self.say("this is the last step" if step > 0 else "this is the first step")

    def do_replay_next_decision(self) -> None:
        self._jump("decisions", 1)

    def do_replay_previous_decision(self) -> None:
        self._jump("decisions", -1)

    def do_replay_next_stage(self) -> None:
        self._jump("stages", 1)

    def do_replay_previous_stage(self) -> None:
        self._jump("stages", -1)

    def _jump(self, what: str, direction: int) -> None:
        self._stop()  # who jumps wants to look at that place
        deck = self.deck
        if deck is None:
            return
        found = deck.tape.decisions if what == "decisions" else deck.tape.stages
        there = deck.tape.jump(deck.position, found, direction)
        if there == deck.position:
            self.say(f"no {what} {'after' if direction > 0 else 'before'} this step")
        deck.go(there)
        self._tell()

    # --- playing ---------------------------------------------------------------------------------

    def do_replay_play(self) -> None:
        if self._timer is not None:
            self._stop()
        elif self.deck is not None:
            if self._at_end:
                self.deck.go(0)
            self._start()
        self._tell()

    @property
    def _at_end(self) -> bool:
        return self.deck is not None and self.deck.position >= self.deck.tape.last

    def _start(self) -> None:
        self._timer = self.set_interval(1 / SPEEDS[self._speed], self._tick)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.stop()
        self._timer = None

    def _tick(self) -> None:
        self._step(1)
        if self._at_end:
            self._stop()
            self._tell()

    def do_replay_faster(self) -> None:
        self._pace(1)

    def do_replay_slower(self) -> None:
        self._pace(-1)

    def _pace(self, step: int) -> None:
        self._speed = max(0, min(self._speed + step, len(SPEEDS) - 1))
        if self._timer is not None:
            self._stop()
            self._start()
        self._tell()

    # --- what is shown ---------------------------------------------------------------------------

    def do_replay_follow(self) -> None:
        self._show(None)

    def do_replay_source(self) -> None:
        self._show(Stage.SOURCE)

    def do_replay_lifted(self) -> None:
        self._show(Stage.LIFTED)

    def do_replay_target(self) -> None:
        self._show(Stage.TARGET)

    def do_replay_lowered(self) -> None:
        self._show(Stage.LOWERED)

    def _show(self, stage: Stage | None) -> None:
        if self.deck is not None:
            self.deck.show_stage(stage)
        shown = (
            f"the {stage.value} text at each step" if stage else "the text that each step changes"
        )
        self.say(f"shown: {shown}")

    def do_replay_next_pane(self) -> None:
        self._focus(1)

    def do_replay_previous_pane(self) -> None:
        self._focus(-1)

    def _focus(self, step: int) -> None:
        panes = list(self.query(CodePane))
        if panes:
            here = panes.index(self.focused) if isinstance(self.focused, CodePane) else -step
            panes[(here + step) % len(panes)].focus()

    # --- forks -----------------------------------------------------------------------------------

    def do_replay_fork(self) -> None:
        """A new session that begins with the history up to the shown step, after asking: it stays
        in the store."""
        deck = self.deck
        if deck is None or not deck.tape.steps:
            self.say("there is no step to continue from", "stale")
            return
        self._stop()
        self._tell()
        step, session = deck.tape.steps[deck.position], deck.session.id
        question = (
            f"Begin a new session with {session} up to step {step.number}? It stays in the store; "
            f"{session} is left as it is."
        )
        self.app.push_screen(
            Confirm(question), lambda yes: self._fork(session, step) if yes else None
        )

    def _fork(self, session: str, step: Step) -> None:
        store, actor = self.cubridge.store, self.cubridge.actor
        self._continues = step.after
        self.say(f"a new session from step {step.number} …")
        self.cubridge.jobs.submit(
            "copy", lambda: store.fork(session, actor=actor, at=step.event.id), self._forked,
            quiet=True, keeps=True,
        )  # fmt: skip

    def _forked(self, outcome: Outcome) -> None:
        if outcome.error is not None:
            self.cubridge.say(str(outcome.error).replace("\n", " "), "fail")
        elif isinstance(outcome.value, str) and self.app.screen is not self:
            self.cubridge.say(f"{outcome.value} begins with this history: the start screen has it")
        elif isinstance(outcome.value, str):
            self.dismiss(None)
            if self._continues is not None:
                # Where the next decision is, and not at the beginning of a history gone through.
                stage, hunk = next_decision(self._continues)
                places.save(outcome.value, places.Place(focus=stage.value, hunk=hunk))
            self.cubridge.open_session(outcome.value)

    def do_replay_close(self) -> None:
        self._stop()
        self.dismiss(None)
