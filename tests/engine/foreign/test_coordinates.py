"""What may be a term of a coordinate, of what was seen in scope."""

from __future__ import annotations

import numpy as np

from engine.foreign.probe.coordinates import Seen, _columns
from engine.foreign.probe.coverage import Held
from engine.foreign.probe.tracks import Track


def _track(threads: np.ndarray, numbers: np.ndarray, kind: int) -> Track:
    bits = numbers.astype(np.uint32)[:, None]
    zeros = np.zeros(len(threads), np.int64)
    return Track(kind, threads, zeros, bits, np.ones(bits.shape, np.bool_), (0,))


def _digits(kind: int, first: int) -> set[str]:
    """Whose digits are terms where threads from 128 on come to a place, and a variable numbers
    them from `first` on."""
    threads = np.arange(128, 384)
    pairs = np.zeros((256, 1), np.int64)
    held = Held(0, 1.0, (0,), pairs, np.ones(1, np.bool_), 1)
    scores = _track(threads, np.zeros(256), 1)
    numbers = {"own": _track(threads, threads - first, kind)}
    seen = Seen({"B": 1}, 1.0, held, scores, numbers, {0: ((1, 1, 1), (384, 1, 1))})
    return {c.text for c in _columns([seen]) if c.bit >= 0}


def test_a_variable_that_numbers_threads_from_a_later_one() -> None:
    assert _digits(2, 128) == {"own"}
    assert _digits(2, 0) == {"int(threadIdx.x)"}  # from the first: the same digits
    assert _digits(2, 100) == {"int(threadIdx.x)"}  # and threads between them
    assert _digits(3, 128) == {"int(threadIdx.x)"}  # a sum with an unsigned one is unsigned
