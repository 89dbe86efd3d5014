"""One line of the screen made of styled texts; data in it is shown as it is, never as markup."""

from __future__ import annotations

import re
import textwrap
import time
from collections.abc import Mapping, Sequence

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Size
from textual.strip import Strip
from textual.widget import Widget

from cubridge_tui.actions import key_named
from cubridge_tui.console import typeable
from cubridge_tui.text.sanitise import one_line
from cubridge_tui.themes import Palette
from cubridge_tui.widgets.paint import palette_of
from cubridge_tui.widgets.still import still

Part = tuple[str, str]  # text, style name of the palette
FIRST_WIDTH = 120  # of a footer that has no size yet
GRACE = 0.15  # seconds in which a key or a click is no answer to what it could not have seen
# `: x rejects, A accepts all`: keys at the begin of a clause, each before what it does.
_CLAUSE = re.compile(r"(?:^ *|[:;,(] )(\S|esc|tab|enter|space) (?:[a-z]+s|on)\b[^:;,()]*")


class Line(Widget):
    """Parts from the left, others from the right with a blank between them at any width; what does
    not fit ends in an ellipsis.

    On a screen that has a key for it (`whole_key`), the key stands there too: it shows all of it.
    Parts in the style `key` name keys, which a click on them or on the words after them presses;
    so does a clause that begins with a key and what it does.
    """

    DEFAULT_CSS = "Line { height: 1; }"
    virtual_size = still()

    def __init__(self, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._left: tuple[Part, ...] = ()
        self._right: tuple[Part, ...] = ()
        self._fill: Part = (" ", "")
        self._wide = (0, 0)  # columns that each side takes

    def put(self, left: Sequence[Part], right: Sequence[Part] = (), fill: Part = (" ", "")) -> None:
        """Show these parts; `fill` is the character between the two sides, with its style."""
        if right and not right[0][0].startswith(" "):
            right = [(" ", ""), *right]
        parts = tuple(tuple((one_line(typeable(t)), s) for t, s in side) for side in (left, right))
        if (*parts, fill) != (self._left, self._right, self._fill):
            self._left, self._right = parts
            self._wide = (_columns(parts[0]), _columns(parts[1]))
            self._fill = fill
            self.refresh()

    @property
    def text(self) -> str:
        """What the line says, uncut."""
        return "".join(t for t, _ in (*self._left, *self._right))

    @property
    def _aside(self) -> int:
        """Columns for the parts from the right: none where they would leave a long left less than
        half."""
        rest = self.size.width - self._wide[1]
        return self._wide[1] if 2 * rest >= self.size.width or self._wide[0] <= rest else 0

    @property
    def _room(self) -> int:
        """Columns for the parts from the left."""
        return self.size.width - self._aside

    @property
    def cut(self) -> bool:
        """Whether a part of what it says is out of sight."""
        return self._wide[0] > self._room

    @property
    def _whole_key(self) -> str:
        return str(getattr(self.screen, "whole_key", ""))

    def key_at(self, x: int) -> str:
        """The key that a cell names, itself or in the words after it; empty for none."""
        at, parts = (self._room, self._right) if x >= self._room else (0, self._left)
        before = ("", "")
        for part in parts:
            at += cell_len(part[0])
            if x < at:
                told = x - at + cell_len(part[0])
                for clause in _CLAUSE.finditer(part[0]):
                    low, high = (cell_len(part[0][:n]) for n in (clause.start(1), clause.end()))
                    if low <= told < high:
                        return key_named(clause[1])
                named = next((t for t, style in (part, before) if style == "key"), "")
                return key_named((named.split() or [""])[0])
            before = part
        return ""

    async def on_click(self, event: events.Click) -> None:
        """A key that is named is pressed by a click on it."""
        key = self.key_at(event.x)
        if key and not event.y:
            event.stop()
            self.app.simulate_key(key)

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        if y:
            return Strip.blank(width, Style.null())
        palette = palette_of(self.app)
        right, room = self._aside, self._room
        key = f" {self._whole_key}" if self.cut and self._whole_key else ""
        room -= cell_len(key)
        segments: list[Segment] = []
        used = 0
        for text, style in self._left:
            size = cell_len(text)
            if used + size > room:
                cut = set_cell_size(text, max(room - used - 1, 0)).rstrip() + "…"
                segments.append(Segment(cut, palette.style(style)))
                used += cell_len(cut)
                if key:
                    segments.append(Segment(key, palette.style("key")))
                    used += cell_len(key)
                break
            segments.append(Segment(text, palette.style(style)))
            used += size
        if right:
            segments.append(self._between(width - used - right, palette))
            segments += [Segment(t, palette.style(s)) for t, s in self._right]
        elif used < width:
            segments.append(self._between(width - used, palette))
        strip = Strip(segments).adjust_cell_length(width, Style.null())
        return strip.apply_style(self.rich_style)

    def _between(self, cells: int, palette: Palette) -> Segment:
        glyph, style = self._fill
        return Segment(glyph * cells, palette.style(style) if style else Style.null())


class Whole(Line):
    """A line that becomes as many as its text needs: for a dialog, which has no key to spare."""

    DEFAULT_CSS = "Whole { height: auto; }"

    def say(self, text: str, style: str) -> None:
        """Show a text in one style."""
        self.put([(f" {text}", style)] if text else [])
        self.refresh(layout=True)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return max(len(self._pieces(width)), 1)

    def _pieces(self, width: int) -> list[str]:
        text = "".join(t for t, _ in self._left)
        return textwrap.wrap(text, max(width, 20), initial_indent=" ", subsequent_indent=" ")

    def render_line(self, y: int) -> Strip:
        pieces, width = self._pieces(self.size.width), self.size.width
        if y >= len(pieces):
            return Strip.blank(width, Style.null())
        palette = palette_of(self.app)
        strip = Strip([Segment(pieces[y], palette.style(self._left[0][1]))])
        return strip.adjust_cell_length(width, Style.null()).apply_style(self.rich_style)


class Banner(Line):
    """A line that is there only while it has something to say."""

    DEFAULT_CSS = "Banner { height: 1; display: none; }"

    def say(self, text: str) -> None:
        if self.display != bool(text):
            self.display = bool(text)  # a new layout: only when it is one
        self.put([(" " + text, "banner")] if text else [], (), (" ", "banner"))


class KeyBar(Line):
    """The footer: keys that do something now; a click on one does it too.

    Where not all of them fit, the least wanted go, but never the way out and help; one whose words
    are too long is shown with its short word first. A click on a place that named another key a
    moment ago was meant for that one, so it does nothing.
    """

    def __init__(self, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._keys: tuple[tuple[str, str, str], ...] = ()
        self._short: Mapping[str, str] = {}
        self._last = 0
        self._ends: list[tuple[int, str]] = []  # the cell after each key's words, its action
        self._before: list[tuple[int, str]] = []  # these until the last change, and when it was
        self._changed = 0.0

    def keys(
        self,
        keys: Sequence[tuple[str, str, str]],
        last: int = 0,
        short: Mapping[str, str] | None = None,
    ) -> None:
        """Show (key, word, action) of each, the most wanted first; the `last` ones always.

        `short` gives a shorter word for an action where its own does not fit.
        """
        self._keys, self._last, self._short = tuple(keys), last, short or {}
        self._fit()

    def on_resize(self) -> None:
        self._fit()

    def _fit(self) -> None:
        room = self.size.width or FIRST_WIDTH
        count = len(self._keys) - self._last
        last = self._keys[count:]
        taken = sum(map(_cells, last))
        first: list[tuple[str, str, str]] = []
        for each in self._keys[:count]:
            if taken + _cells(each) > room:
                each = (each[0], self._short.get(each[2]) or each[1], each[2])
            if taken + _cells(each) <= room:  # one too long makes room for those after it
                taken += _cells(each)
                first.append(each)
        parts: list[Part] = []
        ends: list[tuple[int, str]] = []
        at = 0
        for key, word, action in (*first, *last):
            parts += [(f" {key}", "key"), (f" {word} ", "dim")]
            at += _cells((key, word, action))
            ends.append((at, action))
        if ends != self._ends:
            self._before, self._ends, self._changed = self._ends, ends, time.monotonic()
        self.put(parts)

    @property
    def _whole_key(self) -> str:
        return ""  # what does not fit was left out already, and is in the help

    def action_at(self, x: int) -> str:
        """The action whose key or word is in a cell; empty beyond the last."""
        return _action(self._ends, x)

    async def on_click(self, event: events.Click) -> None:
        action = self.action_at(event.x)
        event.prevent_default()  # its keys are actions
        changed = time.monotonic() - self._changed < GRACE
        moved = changed and action != _action(self._before, event.x)
        if action:
            event.stop()
            await self.run_action(f"screen.{'missed' if moved else 'act'}('{action}')")


def _action(ends: Sequence[tuple[int, str]], x: int) -> str:
    return next((action for end, action in ends if x < end), "")


def _columns(parts: Sequence[Part]) -> int:
    return sum(cell_len(text) for text, _ in parts)


def _cells(key: tuple[str, str, str]) -> int:
    """Columns that a key and its word take."""
    return cell_len(key[0]) + cell_len(key[1]) + 3
