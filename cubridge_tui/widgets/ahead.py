"""Rows that the next key will show are made while nobody waits for them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from textual.app import App
from textual.timer import Timer

from cubridge_tui.steady import Keys

if TYPE_CHECKING:
    from cubridge_tui.widgets.painted_rows import Coming, PaintedRows

AHEAD_SECONDS = 0.02  # a key's repaint comes first
AT_ONCE_SECONDS = 0.002  # a key that comes in between waits for them


class Ahead:
    """Makes rows for all panes of an app, one short slice between two turns of its loop.

    Panes that did so each by itself took a slice each in one turn, and a key waited for all. It
    gives way to a key that waits for its repaint, and to a pane that waits for its own. Between
    two slices there is no pause: with one, four panes were not ready at a person's next key.
    """

    def __init__(self, app: App[Any], keys: Keys) -> None:
        self._app, self._keys = app, keys
        # What is left of each pane, whose turn it is first; None: it is not known yet.
        self._left: dict[PaintedRows, Iterator[Coming] | None] = {}
        self._timer: Timer | asyncio.Handle | None = None

    def soon(self, pane: PaintedRows) -> None:
        """A pane shows something else, so other rows come next."""
        self._left[pane] = None
        if self._timer is None:
            self._timer = self._app.set_timer(AHEAD_SECONDS, self.read)

    def read(self) -> None:
        """Make rows for a slice's time, and see to the next slice where some are left."""
        self._timer = None
        for pane in [p for p in self._left if not (p.is_attached and p.display)]:
            del self._left[pane]
        rest = self._keys.wait(time.monotonic())
        if not rest and any(pane.waits_for_paint for pane in self._left):
            rest = AHEAD_SECONDS
        until = time.monotonic() + AT_ONCE_SECONDS
        while self._left and not rest:
            pane = next(iter(self._left))
            coming = self._left.pop(pane) or pane.coming()
            if not pane.make(coming, until):
                self._left[pane] = coming  # behind the others
                self._timer = asyncio.get_running_loop().call_soon(self.read)
                return
        if rest and self._left:
            self._timer = self._app.set_timer(min(rest, AHEAD_SECONDS), self.read)
