"""Widgets whose content never scrolls under bars of their own."""

from __future__ import annotations

from textual.geometry import Size
from textual.reactive import Reactive


def still() -> Reactive[Size]:
    """A `virtual_size` whose changes arrange nothing.

    Textual arranges and paints the whole screen a second time when arranging it has changed the
    size of what is in a widget, as scrollbars might come or go by that.
    """
    return Reactive(Size(0, 0), layout=False, repaint=False)
