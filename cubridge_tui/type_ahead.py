"""Keys that come before the one in front of them has been acted on.

Textual gives each key to the widget that has the focus when it comes. In a burst (a paste, a
script, fast fingers) the letters behind a key that opens a line to type into reach the pane below
it: some move its cursor, the others are lost. Here they wait until that key was acted on, and go to
whoever has the keys then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual.events import Key
from textual.message import Message

LONGEST = 0.5  # seconds: where the widget goes away, the sign that it passed the key on never comes


class Passed(Message):
    """Bubbles up behind a key that was sent to the same widget: the key has been acted on."""


class TypedInto:
    """A screen that takes the keys which were typed before it was there. It says when it is.

    Mixed into a screen; `open_to` is called once its widgets can take keys.
    """

    _opened = False
    _waiting: Callable[[], object] | None = None

    def opened(self, then: Callable[[], object]) -> bool:
        """Whether keys can be taken; else `then` is called once they can."""
        self._waiting = then
        return self._opened

    def open_to(self) -> None:
        """Keys can be taken from now on."""
        self._opened = True
        if self._waiting is not None:
            self._waiting()

    def take(self, keys: Sequence[Key]) -> Sequence[Key]:
        """Act on one key or more; what is left over belongs to what comes after this screen."""
        raise NotImplementedError


class TypeAhead:
    """The keys that wait, and whether one that comes now has to."""

    def __init__(self) -> None:
        self._keys: list[Key] | None = None

    def hold(self) -> None:
        """What comes from now on waits."""
        self._keys = self._keys or []

    def holds(self, key: Key) -> bool:
        """Whether the key has to wait; it is kept then."""
        if self._keys is None:
            return False
        self._keys.append(key)
        return True

    def release(self) -> list[Key]:
        """The keys that waited; nothing waits any more."""
        keys, self._keys = self._keys or [], None
        return keys
