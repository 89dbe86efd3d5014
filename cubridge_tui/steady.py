"""The interpreter's own pauses, kept away from keys: thread switches and the garbage collector."""

from __future__ import annotations

import gc
import sys

# A thread that computes gives the interpreter to the one that paints this often (Python: 5 ms).
SWITCH_SECONDS = 0.001
# Python looks for cycles after 700 new objects (a page of rows has more), and at every hundredth
# look walks all that it knows, which takes longer than a key may. Here it looks at new objects only
# and seldom; the rest is left to `Tidy`.
THRESHOLDS = (10_000, 1_000, 1_000)


def steady() -> None:
    """For a process whose business is one screen."""
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.set_threshold(*THRESHOLDS)


class Tidy:
    """Collects what is left in cycles, closed screens above all, when nobody typed for a while.

    `touched` says that somebody did something; `look` is called now and then.
    """

    def __init__(self, wait: float) -> None:
        self._wait = wait
        self._since: float | None = None  # nothing was done since the last collection

    def touched(self, now: float) -> None:
        self._since = now

    def look(self, now: float, busy: bool) -> bool:
        """Collect if it is time to; whether it was. Work that goes on counts as typing."""
        if busy:
            self._since = now
        if self._since is None or now - self._since < self._wait:
            return False
        self._since = None
        gc.collect()
        return True
