"""What every screen does the same way: actions from the table, footer, messages, grace periods."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual import events
from textual.binding import Binding, BindingType
from textual.reactive import Reactive
from textual.widget import Widget

from cubridge_tui import actions
from cubridge_tui.model.facts import Facts
from cubridge_tui.screens.closing import ClosingScreen
from cubridge_tui.widgets.backdrop import LeanCompositor
from cubridge_tui.widgets.line import GRACE, KeyBar, Line

if TYPE_CHECKING:
    from cubridge_tui.app import CuBridgeApp


def bindings(screen: str) -> list[BindingType]:
    """The bindings of a screen; each bears its action's id, which a keymap names."""
    return [
        Binding(",".join(a.keys), f"act('{a.id}')", a.words, show=False, id=a.id)
        for a in actions.actions_of(screen)
        if a.keys
    ]


class ActionScreen(ClosingScreen[Any], inherit_bindings=False):
    """A screen whose actions are methods `do_ID` (`-` as `_`) and whose state is `facts()`."""

    NAME: ClassVar[str] = actions.EVERYWHERE
    # Textual repaints the whole screen when the focus moves; the two panes repaint themselves.
    focused: Reactive[Widget | None] = Reactive(None, repaint=False)

    def __init__(self) -> None:
        super().__init__()
        self._compositor = LeanCompositor()
        self.seen_at = time.monotonic()
        self._dropped = 0  # keys in a row that came too soon
        self._waits = ""  # the message that something runs, which is no more true once it ended

    async def _on_idle(self, event: events.Idle) -> None:
        """A key's repaint comes at once, not when Textual's next frame does: up to 33 ms later,
        where something else was painted just before."""
        await super()._on_idle(event)
        if self.cubridge.keys.rest(time.monotonic()):
            asyncio.get_running_loop().call_soon(self._on_timer_update)

    def _compositor_refresh(self) -> None:
        """One repaint for all that waits for one, not a second one after Textual's pause of 16 ms.

        What a new arrangement changes in widgets (scrollbars above all) asks for it only later.
        """
        waiting = {w for w in self._compositor.visible_widgets if w._repaint_required}
        for widget in waiting:
            widget._repaint_required = False
        self._compositor.update_widgets(waiting)
        super()._compositor_refresh()

    @property
    def cubridge(self) -> CuBridgeApp:
        return cast("CuBridgeApp", self.app)

    @property
    def whole_key(self) -> str:
        """The key that shows a line whole that is cut on this screen."""
        return actions.key_of("log", self.cubridge.actions)

    def cut_lines(self) -> list[str]:
        """What the lines of this screen say that are cut at its width, whole."""
        lines = [line for line in self.query(Line) if line.cut and not isinstance(line, KeyBar)]
        return [
            line.text.strip()
            for line in lines
            if all(node.display for node in line.ancestors_with_self)
        ]

    def facts(self) -> Facts:
        """The state that conditions ask about."""
        return Facts()

    def action_act(self, id: str) -> None:
        """Do an action of the table, or say why not."""
        action = next(a for a in self.cubridge.actions if a.id == id)
        why = action.when(self.facts())
        if why:
            self.say(why, "stale")
            self._waits = why if why == actions.idle(self.facts()) else ""
            return
        if id != "log":  # which shows whole what is said
            self.say("")
        name = "do_" + id.replace("-", "_")
        target = getattr(self, name, None) or getattr(self.cubridge, name)
        target()
        self.refresh_keys()

    def action_missed(self, id: str) -> None:
        """Say that a click on an action of the footer was not meant for it."""
        words = next(a.footer or a.words for a in self.cubridge.actions if a.id == id)
        self.say(f"click ignored: `{words}` was not there yet; look, then click again", "stale")

    def say(self, text: str, style: str = "dim") -> None:
        """A message on the status line; it stays until the next action."""
        for line in self.query("#status").results(Line):
            line.put([(f" {text}", style)] if text else [])

    def refresh_keys(self) -> None:
        """The footer for the present state; none while another screen has the keys."""
        if not self.is_active:
            return
        table = self.cubridge.actions
        for bar in self.query(KeyBar):
            shown = actions.footer(self.NAME, self.facts(), table)
            bar.keys(shown, actions.ways_out(shown), {a.id: a.footer for a in table})

    def job_news(self) -> None:
        """The running job said something, or ended."""

    def job_ended(self) -> None:
        """No named job runs any more: a message that one does goes."""
        if self._waits and any(self._waits in s.text for s in self.query("#status").results(Line)):
            self.say("")
        self._waits = ""

    @property
    def unsaved(self) -> int:
        """Events of its session that are not on the disk yet: quitting would lose them."""
        return 0

    def changes(self) -> bool:
        """Whether something runs that may change what a key of this screen would decide."""
        return self.cubridge.jobs.busy

    def too_soon(self, what: str = "this") -> bool:
        """Whether what the person sees changed so lately that the key was not meant for it."""
        if self.changes() or time.monotonic() - self.seen_at < GRACE:
            self._dropped += 1
            self.say(self.dropped_words(what), "stale")
            return True
        self._dropped = 0
        return False

    def dropped_words(self, what: str = "this") -> str:
        """That keys were ignored, how many and why; empty when none was."""
        if not self._dropped:
            return ""
        keys = f"{self._dropped} keys " if self._dropped > 1 else ""
        return f"{keys}ignored: {what} was not on the screen yet; look, then press again"

    def on_screen_suspend(self) -> None:
        for bar in self.query(KeyBar):
            bar.keys(())

    def on_screen_resume(self) -> None:
        self.seen_at = time.monotonic()
        self.refresh_keys()
