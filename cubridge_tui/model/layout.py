"""Which panes stand where, by width: no code under 58 columns, no room for an empty pane."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from engine.types import Stage

PANES = (Stage.SOURCE, Stage.LIFTED, Stage.TARGET, Stage.LOWERED)
PAIRS = (
    (Stage.SOURCE, Stage.LIFTED),
    (Stage.LIFTED, Stage.TARGET),
    (Stage.TARGET, Stage.LOWERED),
    (Stage.SOURCE, Stage.LOWERED),
)
# Side by side: an old text and what became of it.
ALIGNED = ((Stage.LIFTED, Stage.TARGET), (Stage.SOURCE, Stage.LOWERED))
SQUARE, TWO = 140, 120
SQUARE_HEIGHT = 24  # rows that a 2 x 2 layout needs for its panes


@dataclass(frozen=True, slots=True)
class Wish:
    """What the person asked for: a pair of panes (None: all that fit), or one pane alone."""

    pair: int | None = None
    zoom: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """The panes in reading order and the number of columns; `tall` is one over both rows."""

    panes: tuple[Stage, ...]
    columns: int
    tall: Stage | None = None

    @property
    def hidden(self) -> tuple[Stage, ...]:
        return tuple(s for s in PANES if s not in self.panes)


def layout(
    width: int, height: int, wish: Wish, focused: Stage, have: Collection[Stage] = PANES
) -> Layout:
    """The layout for a width and height in cells; the focused pane is always shown, and one that
    has no text (`have` are those that do) only then."""
    if wish.zoom or width < TWO:
        return Layout((focused,), 1)
    if wish.pair is not None:
        pair = PAIRS[wish.pair]
        return Layout(pair if focused in pair else (focused, pair[1]), 2)
    full = tuple(s for s in PANES if s in have or s is focused)
    if len(full) <= 2:
        return Layout(full, len(full))
    if width >= SQUARE and height >= SQUARE_HEIGHT:
        if len(full) == len(PANES):
            return Layout(PANES, 2)
        first, second, third = full  # the last one is what was made last, and gets the room
        return Layout((first, third, second), 2, third)
    if focused in (Stage.SOURCE, Stage.LIFTED):
        return Layout(PAIRS[0], 2)
    return Layout(PAIRS[2] if focused is Stage.LOWERED else PAIRS[1], 2)
