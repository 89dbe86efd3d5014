"""Where a dialog sits: over the screen that it is about, and not on the row that it is about."""

from __future__ import annotations

from typing import Any

from textual.containers import Vertical
from textual.screen import ModalScreen

from cubridge_tui.widgets.code_pane import CodePane

ROWS_ROUND = 2  # rows before and after the cursor's that stay in sight; fewer on a small screen
SMALL = 30  # rows of a screen on which a dialog needs them more
MOST = 2 / 3  # of a text: with so much of it to read at once, the rest may scroll


def sit(dialog: ModalScreen[Any], needed: int, *, beside: bool = False) -> None:
    """Give a dialog's box its height and its side: the cursor's row below it stays in sight.

    Where most of the `needed` rows do not fit beside that row the box covers it, in the middle of
    the dimmed screen; `beside` says that the row matters more: the box is then as high as fits.
    """
    height = dialog.size.height
    tall = min(needed, height * 9 // 10)
    pane = _pane_below(dialog)
    if pane is None:
        _place(dialog, tall, "middle")
        return
    row = pane.content_region.y + pane.cursor - pane.scroll_offset.y
    if max(_room(row, height)) < tall:  # its row goes up, and makes room
        top = max(pane.cursor - _round(height), 0)
        higher = pane.content_region.y + pane.cursor - top
        if max(_room(higher, height)) > max(_room(row, height)):
            pane.scroll_to(y=top, animate=False, force=True)
            row = higher
    above, below = _room(row, height)
    room = max(above, below)
    if room < needed * MOST and not beside:
        _place(dialog, tall, "middle")
    else:
        _place(dialog, min(tall, room), "bottom" if below >= min(tall, room) else "top")


def _room(row: int, height: int) -> tuple[int, int]:
    """Rows above and below a row and those round it."""
    near = _round(height)
    return max(row - near, 0), max(height - row - 1 - near, 0)


def _round(height: int) -> int:
    return ROWS_ROUND if height > SMALL else 1


def _place(dialog: ModalScreen[Any], tall: int, side: str) -> None:
    dialog.query_one(Vertical).styles.height = tall
    dialog.styles.align_vertical = side
    dialog.set_class(side != "middle", "beside")


def _pane_below(dialog: ModalScreen[Any]) -> CodePane | None:
    """The pane with the focus on the screen under a dialog; none where that is a dialog too."""
    stack = dialog.app.screen_stack
    at = stack.index(dialog) if dialog in stack else 0
    below = stack[at - 1] if at else None
    if below is None or below.is_modal or not isinstance(below.focused, CodePane):
        return None
    return below.focused
