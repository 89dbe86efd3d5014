"""Replay: saved sessions play read-only; any step can be the beginning of a new session."""

from __future__ import annotations

from dataclasses import dataclass

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.timer import Timer

from cubridge_tui import actions, places
from cubridge_tui.jobs import Outcome
from cubridge_tui.model.facts import Facts
from cubridge_tui.model.replay import SPEEDS, Tape, next_decision
from cubridge_tui.model.steps import step_words
from cubridge_tui.screens.base import ActionScreen, bindings
from cubridge_tui.screens.dialogs import Confirm
from cubridge_tui.screens.picker import Picker
from cubridge_tui.widgets.code_pane import CodePane
from cubridge_tui.widgets.line import Banner, KeyBar, Line, Part
from cubridge_tui.widgets.replay_deck import ReplayDeck
from engine.types import Stage
from sessions.replay import Step, plain
from sessions.session import Session
from sessions.state import SessionState

_NORMAL = 1  # index in SPEEDS


@dataclass(frozen=True, slots=True)
class Loaded:
    """A session with its tape, made off the UI's thread."""

    session: Session
    tape: Tape


class ReplayScreen(ActionScreen):
    """One session, or two side by side. Nothing here writes to them."""

    NAME = actions.REPLAY
    BINDINGS = bindings(actions.REPLAY)
    DEFAULT_CSS = """
    ReplayScreen #decks { height: 1fr; }
    ReplayScreen.two ReplayDeck { border-left: solid $panel; }
    """

    def __init__(self, session: str) -> None:
        super().__init__()
        self.session = session
        self.together = True
        self._speed = _NORMAL
        self._timer: Timer | None = None
        self._continues: SessionState | None = None  # what a new session begins with

    def compose(self) -> ComposeResult:
        yield Banner(id="banner")
        yield Line(id="decision")
        yield Horizontal(id="decks")
        yield Line(id="status")
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        self._load(self.session)

    def facts(self) -> Facts:
        return Facts(job=self.cubridge.jobs.running)

    @property
    def decks(self) -> list[ReplayDeck]:
        return list(self.query(ReplayDeck))

    @property
    def deck(self) -> ReplayDeck | None:
        """The deck that has the focus, else the first."""
        focused = self.focused
        for deck in self.decks:
            if focused is not None and deck in focused.ancestors:
                return deck
        return self.decks[0] if self.decks else None

    # --- loading ---------------------------------------------------------------------------------

    def _load(self, session: str) -> None:
        store = self.cubridge.store

        def work() -> Loaded:
            found = store.load(session)
            return Loaded(found, Tape.of(found.id, found.events))

        self.query_one("#decision", Line).put([(" reading the history …", "dim")])
        self.cubridge.jobs.submit("replay", work, self._loaded, quiet=True)

    def _loaded(self, outcome: Outcome) -> None:
        if not self.is_attached:
            return
        if not isinstance(outcome.value, Loaded):
            why = str(outcome.error or "cancelled").replace("\n", " ")
            self.query_one(Banner).say(why)
            self._tell()
            return
        deck = ReplayDeck(outcome.value.session, outcome.value.tape)
        self.query_one("#decks").mount(deck)
        self.set_class(len(self.decks) > 1, "two")
        notices = outcome.value.session.notices
        if notices:
            self.query_one(Banner).say("  ".join(notices))

    def _tell(self) -> None:
        if not self.is_attached:
            return
        parts: list[Part] = [(" REPLAY ", "banner")]
        at_end = bool(self.decks) and all(d.position >= d.tape.last for d in self.decks)
        playing = self._timer is not None
        if self.decks and not playing:
            on = "replay-fork" if at_end else "replay-step"
            words = " continues from here " if at_end else " steps on "
            parts += [(" Next: ", "dim"), (actions.key_of(on, self.cubridge.actions), "key")]
            parts.append((words, "title"))
        parts.append((" read-only ", "dim"))
        for deck in self.decks:
            total = len(deck.tape.steps)
            parts.append((f" step {min(deck.position + 1, total)} of {total} ", "title"))
        pace = SPEEDS[self._speed]
        speed = f"{'▶ playing' if playing else 'Ⅱ'} {pace:g} step{'s' * (pace != 1)}/s "
        if len(self.decks) > 1:
            parts.append((" both step " if self.together else " the focused one steps ", "dim"))
        parts.append((speed, "key" if playing else "dim"))
        self.query_one("#decision", Line).put(parts)
        self.refresh_keys()

    def on_replay_deck_moved(self, event: ReplayDeck.Moved) -> None:
        if not isinstance(self.focused, CodePane):
            event.deck.steps.focus()
        self._tell()

    # --- moving ----------------------------------------------------------------------------------

    @property
    def _movers(self) -> list[ReplayDeck]:
        if self.together:
            return self.decks
        return [self.deck] if self.deck is not None else []

    def do_replay_step(self) -> None:
        self._stop()
        self._step(1)
        self._tell()

    def do_replay_back(self) -> None:
        self._stop()
        self._step(-1)
        self._tell()

    def _step(self, step: int) -> None:
        before = [deck.position for deck in self._movers]
        for deck in self._movers:
            deck.go(deck.position + step)
        if before == [deck.position for deck in self._movers]:
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
        moved = False
        for deck in self._movers:
            places = deck.tape.decisions if what == "decisions" else deck.tape.stages
            there = deck.tape.jump(deck.position, places, direction)
            moved = moved or there != deck.position
            deck.go(there)
        if not moved:
            self.say(f"no {what} {'after' if direction > 0 else 'before'} this step")
        self._tell()

    # --- playing ---------------------------------------------------------------------------------

    def do_replay_play(self) -> None:
        if self._timer is not None:
            self._stop()
        elif all(deck.position >= deck.tape.last for deck in self._movers):
            for deck in self._movers:
                deck.go(0)
            self._start()
        else:
            self._start()
        self._tell()

    def _start(self) -> None:
        self._timer = self.set_interval(1 / SPEEDS[self._speed], self._tick)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.stop()
        self._timer = None

    def _tick(self) -> None:
        self._step(1)
        if all(deck.position >= deck.tape.last for deck in self._movers):
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
        for deck in self._movers:
            deck.show_stage(stage)
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

    # --- two sessions, and forks -----------------------------------------------------------------

    def do_replay_beside(self) -> None:
        if len(self.decks) > 1:
            gone = self.decks[1]
            gone.remove()
            self.remove_class("two")
            self.decks[0].steps.focus()
            self.call_after_refresh(self._tell)
            return
        found = self.cubridge.store.sessions()
        rows = [
            (s.id, f"{plain(s.title)}  {s.level}  {plain(step_words(s.last_step))}") for s in found
        ]
        self.app.push_screen(Picker("the session to play beside this one", rows), self._beside)

    def _beside(self, session: str | None) -> None:
        if session is not None:
            self._load(session)

    def do_replay_together(self) -> None:
        if len(self.decks) < 2:
            self.say("one session is played: o plays another beside it", "stale")
            return
        self.together = not self.together
        self._tell()

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
            "fork", lambda: store.fork(session, actor=actor, at=step.event.id), self._forked,
            quiet=True,
        )  # fmt: skip

    def _forked(self, outcome: Outcome) -> None:
        if outcome.error is not None:
            self.say(str(outcome.error).replace("\n", " "), "fail")
        elif isinstance(outcome.value, str) and self.is_attached:
            self.dismiss(None)
            if self._continues is not None:
                # Where the next decision is, and not at the beginning of a history gone through.
                stage, hunk = next_decision(self._continues)
                places.save(outcome.value, places.Place(focus=stage.value, hunk=hunk))
            self.cubridge.open_session(outcome.value)

    def do_replay_close(self) -> None:
        self._stop()
        self.dismiss(None)
