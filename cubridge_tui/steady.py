"""What a key's repaint would wait for, kept away from it: thread switches, the garbage collector,
and whatever of our own may as well come after it."""

from __future__ import annotations

import gc
import math
import sys
from contextlib import suppress

# A thread that computes gives the interpreter to the one that paints this often (Python: 5 ms).
SWITCH_SECONDS = 0.001
# Python looks for cycles after 700 new objects (a page of rows has more), and at every hundredth
# look walks all that it knows, which takes longer than a key may. Here it looks at new objects only
# and seldom, as they are looked at after keys; the rest is left to `Tidy`.
THRESHOLDS = (30_000, 1_000, 1_000)
YOUNG = 1_000  # new objects that are worth a look


def steady() -> None:
    """For a process whose business is one screen. To be called when its modules are loaded."""
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.set_threshold(*THRESHOLDS)
    # Modules, classes and functions stay for good: most of what a full collection would walk.
    gc.freeze()
    gc.enable()


def look_at_new() -> None:
    """Collect what new objects left in cycles: milliseconds after many keys, one after each."""
    if gc.get_count()[0] > YOUNG:
        gc.collect(0)


class Keys:
    """Since when the last key waits for its repaint, so that other work lets it pass."""

    LONGEST = 0.06  # seconds: most keys are painted long before, some paint nothing

    def __init__(self) -> None:
        self._came = -math.inf
        self._waits = False

    def touched(self, now: float) -> None:
        """A key came, or the mouse did something."""
        self._came, self._waits = now, True

    def painted(self) -> bool:
        """The screen was painted; whether a key had waited for it."""
        waited, self._waits = self._waits, False
        return waited

    def rest(self, now: float) -> float:
        """Seconds until its repaint should be over; 0: it is."""
        return max(self._came + self.LONGEST - now, 0.0)

    def wait(self, now: float) -> float:
        """Seconds to its repaint at most; 0: no key waits for one."""
        return self.rest(now) if self._waits else 0.0


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
