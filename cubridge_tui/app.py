"""The app: themes, the bench that all screens share, the jobs' thread, and a clean way out."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import sys
import termios
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual import events
from textual.app import App
from textual.binding import Binding
from textual.dom import DOMNode
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.filter import Monochrome
from textual.screen import Screen
from textual.timer import Timer

from cubridge_tui import actions, plain, themes
from cubridge_tui.config import Config, config_dir, load_config
from cubridge_tui.headless import actor
from cubridge_tui.jobs import Jobs, Outcome
from cubridge_tui.keyboard import KeyboardDriver
from cubridge_tui.model.facts import Facts
from cubridge_tui.screens.base import ActionScreen
from cubridge_tui.screens.palette import ActionProvider, Palette
from cubridge_tui.steady import Keys, Tidy, look_at_new, steady
from cubridge_tui.type_ahead import LONGEST, Passed, TypeAhead, TypedInto
from cubridge_tui.widgets.ahead import Ahead
from engine.errors import advice
from sessions.listing import Listing

if TYPE_CHECKING:
    from cubridge_tui.screens.dialogs import Confirm
    from engine.service.session.adaptation import Beginning
    from engine.service.session.workbench import Bench
    from sessions.store import Store

TERMINAL_SECONDS = 1.0
YOUNG_SECONDS = 0.03  # between a key's repaint and a look at the new objects
TIDY_LOOK_SECONDS, TIDY_SECONDS, TIDY_LATEST_SECONDS = 10.0, 20.0, 300.0


class CuBridgeApp(App[int], inherit_bindings=False):
    """`cubridge` without arguments."""

    TITLE = "CuBridge"
    ENABLE_COMMAND_PALETTE = False  # ours is bound through the action table
    COMMANDS = {ActionProvider}
    BINDINGS = [Binding("ctrl+q", "act_quit", "quit", show=False, priority=True)]
    CSS = """
    #stages, #keys { background: $panel; }
    #decision { background: $surface; }
    """

    def __init__(
        self,
        store: str | None = None,
        config: Config | None = None,
        session: str | None = None,
    ) -> None:
        self.config = config or load_config(actions=frozenset(a.id for a in actions.ACTIONS))
        self.palettes, theme_problems = themes.load_themes(config_dir() / "themes")
        self.actions = actions.with_keys(actions.ACTIONS, self.config.keymap)
        self.warnings = [
            *self.config.warnings, *theme_problems, *actions.clashes(self.actions)
        ]  # fmt: skip
        found = themes.find(self.palettes, self.config["theme"])
        if found is None:
            names = [p.name.removeprefix(themes.PREFIX) for p in self.palettes]
            fix = advice(self.config["theme"], names, f"name one of: {', '.join(names)}")
            self.warnings.append(f"there is no theme {self.config['theme']!r}: {fix}")
        self.palette = found or self.palettes[0]
        super().__init__()
        if self.no_color:
            self._without_colours()
        elif self.console.color_system == "standard":
            self._with_palettes(plain.sixteen)
        self.animation_level = "none"
        self.actor = actor()
        self.listing = Listing.open(store)
        self.cancel = threading.Event()
        self.keys = Keys()
        self.ahead = Ahead(self, self.keys)
        self._typed = TypeAhead()
        self._held_too_long: Timer | None = None
        self._acting = frozenset(key for a in self.actions for key in a.keys)
        self.jobs = Jobs(self.cancel, self._post, self._job_news, self._kept)
        self._quits: Confirm | None = None  # quitting waits, and asks
        self._held: Timer | None = None  # news of a job that let a key pass
        self._interrupts_before: Any = None  # whoever took SIGINT before us
        self._young: Timer | None = None
        self._bench: Bench | None = None
        self._bench_lock = threading.Lock()
        self._opening = session
        self._tidy = Tidy(TIDY_SECONDS, TIDY_LATEST_SECONDS)
        for palette in self.palettes:
            self.register_theme(palette.theme)
        self.theme = self.palette.name
        self.set_keymap(self.config.keymap)

    def _without_colours(self) -> None:
        self._filters = [f for f in self._filters if not isinstance(f, Monochrome)]
        self._filters.append(plain.NoColours())
        self._with_palettes(plain.plain)
        self.stylesheet.add_source(plain.CSS, read_from=("plain", "CSS"))

    def _with_palettes(self, change: Callable[[themes.Palette], themes.Palette]) -> None:
        self.palettes, self.palette = tuple(map(change, self.palettes)), change(self.palette)

    @functools.cached_property
    def store(self) -> Store:
        """The sessions' store: to be opened after the first paint, as the bench."""
        from sessions.store import Store

        return Store(self.listing.path)

    @property
    def bench(self) -> Bench:
        """The workplace of all sessions. Its engine is loaded after the first paint (0.2 s)."""
        with self._bench_lock:
            if self._bench is None:
                from engine.service.session.workbench import Bench

                self._bench = Bench(
                    self.store, cancel=self.cancel, progress=self.jobs.progress, apart=True
                )
            return self._bench

    def get_driver_class(self) -> type[Driver]:
        """Textual's driver, and ours in place of the one that reads terminals."""
        found = super().get_driver_class()
        return KeyboardDriver if found is LinuxDriver else found

    # --- life ------------------------------------------------------------------------------------

    def get_default_screen(self) -> Screen[Any]:
        """The start screen; an empty one below it would be made and arranged for nobody."""
        from cubridge_tui.screens.start import StartScreen

        return StartScreen()

    def on_mount(self) -> None:
        self._catch_signals()
        # What was on the screen is gone when the process is continued: all of it is painted again.
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True))
        self.set_interval(TIDY_LOOK_SECONDS, self._tidy_up)
        self.set_interval(1.0, self._tell_elapsed)
        self.jobs.start()
        if self._opening:
            self.open_session(self._opening)
        # torch is imported in the child, while the person reads the first screen.
        self.set_timer(0.3, lambda: self.jobs.submit("", self._warm_up, lambda _: None, quiet=True))

    def refresh_css(self, animate: bool = True) -> None:
        """As Textual's; before the first screen no rule is read yet, so none is read again."""
        if self.screen_stack:
            super().refresh_css(animate)
        else:
            self.stylesheet.set_variables(self.get_css_variables())

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.InputEvent):
            now = time.monotonic()
            self._tidy.touched(now)
            self.keys.touched(now)
        if not isinstance(event, events.Key) or event.is_forwarded:
            await super().on_event(event)
        elif not self._typed.holds(event):
            target = self.focused or self.screen
            acts = isinstance(self.screen, ActionScreen) and event.key in self._acting
            await super().on_event(event)
            # What is typed behind a key of an action is for what the action has opened by then.
            if acts and target.post_message(Passed()):
                self._typed.hold()
                self._held_too_long = self.set_timer(LONGEST, self.on_passed)

    async def on_passed(self) -> None:
        """A key of an action was acted on: what was typed behind it goes where the keys go now."""
        if self._held_too_long is not None:
            self._held_too_long.stop()
        into = self.screen if isinstance(self.screen, TypedInto) else None
        if into and not into.opened(functools.partial(self.call_later, self.on_passed)):
            return
        keys = self._typed.release()
        for key in into.take(keys) if into and keys else keys:
            await self.on_event(key)

    def _display(self, screen: Screen[Any], renderable: Any) -> None:
        super()._display(screen, renderable)
        if self.keys.painted() and self._young is None:
            self._young = self.set_timer(YOUNG_SECONDS, self._look_at_new)

    def _look_at_new(self) -> None:
        rest = self.keys.wait(time.monotonic())
        self._young = self.set_timer(rest, self._look_at_new) if rest else None
        if not rest:
            look_at_new()

    def _tidy_up(self) -> None:
        self._tidy.look(time.monotonic(), self.jobs.busy)

    def _warm_up(self) -> None:
        self.bench.child.start()
        import cubridge_tui.screens.adaptation  # noqa: F401 - loaded while the person reads

    def _catch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGHUP):
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(name, self.exit, 128 + name)
        # Not by the loop, whose handlers cannot be put aside while an editor has the terminal.
        with contextlib.suppress(ValueError):
            end = functools.partial(loop.call_soon_threadsafe, self.exit, 128 + signal.SIGINT)
            self._interrupts_before = signal.signal(signal.SIGINT, lambda *_: end())

        if sys.stdin is not None and sys.stdin.isatty():
            self.set_interval(TERMINAL_SECONDS, self._look_at_terminal)

    def on_unmount(self) -> None:
        if self._interrupts_before is not None:
            signal.signal(signal.SIGINT, self._interrupts_before)

    def _look_at_terminal(self) -> None:
        """A terminal that is gone sends no signal to whom it does not control: look."""
        try:
            termios.tcgetattr(sys.stdin.fileno())
        except (termios.error, OSError, ValueError):
            # Nothing can be shown or restored there any more, so Textual's own way out would hang.
            self.close()
            os._exit(128 + signal.SIGHUP)

    def close(self) -> None:
        """End jobs and children; called once the terminal is restored, or the app has failed."""
        self.jobs.close()
        if self._bench is not None:
            self._bench.close()

    def _post(self, function: Callable[..., None], *arguments: Any) -> None:
        """From the jobs' thread to ours."""
        with contextlib.suppress(Exception):  # the app may be on its way out
            self.call_later(function, *arguments)

    def _tell_elapsed(self) -> None:
        """A job that says nothing for a while is seen to run."""
        if self.jobs.running:
            self._job_news()

    def _job_news(self) -> None:
        """The running job said something, which lets a key pass that waits for its repaint; or it
        ended."""
        if self._held is not None and self.jobs.running:
            return
        rest = self.keys.rest(time.monotonic()) if self.jobs.running else 0.0
        if rest:
            self._held = self.set_timer(rest, self._tell_held)
        else:
            self._tell_news()

    def _tell_held(self) -> None:
        self._held = None
        self._tell_news()

    def _tell_news(self) -> None:
        # Only what can be seen: a hidden screen that changes has the whole shown one painted again.
        for screen in reversed(self.screen_stack):
            if isinstance(screen, ActionScreen):
                screen.job_news()
                if not self.jobs.running:
                    screen.job_ended()
            if not screen.is_modal:
                break

    # --- actions that work everywhere ------------------------------------------------------------

    def facts(self) -> Facts:
        """The state of the screen that the actions are about."""
        screen = self.action_screen
        return screen.facts() if screen is not None else Facts()

    @property
    def action_screen(self) -> ActionScreen | None:
        """The topmost screen with actions (dialogs and the palette have none)."""
        return next((s for s in reversed(self.screen_stack) if isinstance(s, ActionScreen)), None)

    def handle_bindings_clash(self, clashed_bindings: set[Binding], node: DOMNode) -> None:
        """A keymap that takes a key twice: told in the warnings, by `actions.clashes`."""

    def do_help(self) -> None:
        from cubridge_tui.screens.help import HelpDialog

        screen = self.action_screen
        name = screen.NAME if screen is not None else actions.START

        def chosen(action: str | None) -> None:
            if action and screen is not None:
                screen.action_act(action)

        self.push_screen(HelpDialog(name, self.facts(), self.actions), chosen)

    def do_palette(self) -> None:
        self.action_command_palette()

    def do_theme(self) -> None:
        names = [p.name for p in self.palettes]
        following = names[(names.index(self.palette.name) + 1) % len(names)]
        self.palette = next(p for p in self.palettes if p.name == following)
        self.theme = following
        if self.action_screen is not None:
            self.action_screen.say(f"theme: {self.palette.title}")

    def do_log(self) -> None:
        from cubridge_tui.screens.dialogs import TextDialog

        lines = [*self.warnings, *self.jobs.log] or ["nothing has run yet"]
        screen = self.action_screen
        cut = screen.cut_lines() if screen is not None else []
        if cut:  # last, where the log opens
            lines += ["", "cut on the screen:", *cut]
        title = "log: what jobs said, newest last"
        self.push_screen(TextDialog(title, lines, at=-1))

    def say(self, text: str, style: str = "dim") -> None:
        """A message on whichever screen is there: the one that it is about was left."""
        if self.action_screen is not None:
            self.action_screen.say(text, style)

    def do_quit(self) -> None:
        """Quit; where that would lose what the person asked for, once it is kept, or after asking.

        What only computes is not waited for: it is cancelled, and can be done again.
        """
        from cubridge_tui.screens.dialogs import Confirm

        job = self.jobs.keeping
        unsaved = sum(s.unsaved for s in self.screen_stack if isinstance(s, ActionScreen))
        if job:
            question = (
                f"“{job}” is under way: CuBridge quits once it is done. Quit now, and lose it?"
            )
        elif unsaved:
            question = f"{unsaved} events are not saved and would be lost. Quit?"
        else:
            self.exit(0)
            return
        if self._quits is None or self._quits is not self.screen:
            self._quits = Confirm(question)
            self.push_screen(self._quits, lambda yes: self.exit(0) if yes else None)

    def _kept(self, outcome: Outcome) -> None:
        """A job that keeps something ended: quit where that waits for it, unless it did not work,
        which is said then."""
        asked, worked = self._quits, outcome.error is None and not outcome.cancelled
        if asked is not None and asked is self.screen and not (worked and self.jobs.keeping):
            asked.dismiss(False)
            if worked:
                self.do_quit()

    def do_suspend(self) -> None:
        """To the shell, whose `fg` goes on here; not where no shell could do so."""
        alone = self._driver is None or not self._driver.can_suspend
        if alone or os.getsid(0) == os.getpgrp():
            self.say("no shell started this that could go on with it: it is not suspended", "stale")
        else:
            self.action_suspend_process()

    def action_act_quit(self) -> None:
        self.do_quit()

    def action_command_palette(self) -> None:
        if not isinstance(self.screen, Palette):
            # No id: a session that opens over one leaves it below, and two of one id end the app.
            self.push_screen(Palette())

    # --- sessions --------------------------------------------------------------------------------

    def open_session(self, session: str | Beginning, said: str = "") -> None:
        """Show a session where the person left it, or one that is about to begin; `said` of it."""
        from cubridge_tui.screens.adaptation import AdaptationScreen

        self.push_screen(AdaptationScreen(session, said))

    def open_replay(self, session: str) -> None:
        """Play a saved session, read-only."""
        from cubridge_tui.screens.replay import ReplayScreen

        self.push_screen(ReplayScreen(session))


def run(
    store: str | None = None, session: str | None = None, given: dict[str, Any] | None = None
) -> int:
    """Run the app on this terminal; the exit code."""
    config = load_config(given, folder=Path.cwd(), actions=frozenset(a.id for a in actions.ACTIONS))
    app = CuBridgeApp(store, config, session)
    steady()
    try:
        code = app.run(mouse=bool(config["mouse"]))
    finally:
        app.close()
    return code if code is not None else (app.return_code or 0)
