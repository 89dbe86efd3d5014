"""Screens that close once, and of which nothing acts on widgets that are gone: keys, timers and
jobs outlive a screen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from textual.await_complete import AwaitComplete
from textual.screen import ModalScreen, Screen, ScreenResultType
from textual.timer import Timer


class ClosingScreen(Screen[ScreenResultType], inherit_bindings=False):
    """`is_attached` is false from the moment at which the screen begins to close.

    Textual takes the widgets off first and the screen last, so that its own answer holds too long;
    and a timer that is set while the queue is emptied is not stopped with the others. An error in
    a timer's call ends the app.
    """

    @property
    def is_attached(self) -> bool:
        """Whether the screen is one of the app's, and its widgets are there."""
        return super().is_attached and not (self._pruning or self._closing or self._closed)

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        """Close this screen with a result; nothing where it is not the one on top.

        Textual closes whichever screen is on top then: the second of two keys that came at once,
        behind the first, which closed this one, would close the screen below it.
        """
        return super().dismiss(result) if self.app.screen is self else AwaitComplete()

    def set_timer(
        self, delay: float, callback: Callable[[], Any] | None = None, **more: Any
    ) -> Timer:
        """As Textual's; the call is left out once the screen closes."""
        return super().set_timer(delay, self._while_here(callback), **more)

    def set_interval(
        self, interval: float, callback: Callable[[], Any] | None = None, **more: Any
    ) -> Timer:
        """As Textual's; the calls are left out once the screen closes."""
        return super().set_interval(interval, self._while_here(callback), **more)

    def _while_here(self, callback: Callable[[], Any] | None) -> Callable[[], Any] | None:
        if callback is None:
            return None
        return lambda: callback() if self.is_attached else None


# Textual takes the style of the first of these, and the methods of both.
class Dialog(
    ModalScreen[ScreenResultType], ClosingScreen[ScreenResultType], inherit_bindings=False
):
    """A screen over another one."""
