"""The interpreter's own pauses, kept away from keys: thread switches and the garbage collector."""

from __future__ import annotations

import gc
import sys
from contextlib import suppress

# A thread that computes gives the interpreter to the one that paints this often (Python: 5 ms).
SWITCH_SECONDS = 0.001
# Python looks for cycles after 700 new objects (a page of rows has more), and at every hundredth
# look walks all that it knows, which takes longer than a key may. Here it looks at new objects only
# and seldom; the rest is left to `Tidy`.
THRESHOLDS = (10_000, 1_000, 1_000)


def steady() -> None:
    """For a process whose business is one screen. To be called when its modules are loaded."""
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.set_threshold(*THRESHOLDS)
    # Modules, classes and functions stay for good: most of what a full collection would walk.
    gc.freeze()


class Tidy:
    """Collects what is left in cycles, closed screens above all, when nobody types.

    `touched` says that somebody typed; `look` is called now and then. It waits for `wait` seconds
    without a key. Where none came for `latest` seconds since something was first left behind, a
    short pause between keys is enough. Work that goes on leaves things behind too, but is no
    reason to wait: jobs last for hours.
    """

    PAUSE = 1.0

    def __init__(self, wait: float, latest: float) -> None:
        self._wait, self._latest = wait, latest
        self._first: float | None = None  # something was done since the last collection
        self._key = 0.0

    def touched(self, now: float) -> None:
        self._key = now
        if self._first is None:
            self._first = now

    def look(self, now: float, busy: bool) -> bool:
        """Collect if it is time to; whether it was. `busy`: work goes on."""
        if self._first is None:
            if busy:
                self._first = now
            return False
        late = now - self._first >= self._latest
        if now - max(self._key, self._first) < self._wait and not (
            late and now - self._key >= self.PAUSE
        ):
            return False
        self._first = now if busy else None
        forget_styles()
        gc.collect()
        return True


def forget_styles() -> None:
    """Let go of the painted lines of closed screens.

    Textual caches a method of its style caches by the cache that it is called on, so a thousand of
    them live on, each with all the lines of a widget that is gone.
    """
    with suppress(ImportError, AttributeError):
        from textual._styles_cache import StylesCache

        StylesCache.get_inner_outer.cache_clear()
