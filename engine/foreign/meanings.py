"""What else stands where: running maxima, sums and their factors, by the values that they take.

With random inputs a row's maximum over the first tiles, its sum of weights, the factor between two
maxima and its LSE are numbers that hardly anything else hits. A variable all of whose numbers are
among those of one kind holds that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from engine.foreign.observed import Look
from engine.foreign.places import Hook, Loop, Meaning
from engine.foreign.tracks import Track

Array = np.ndarray[Any, Any]
_NEAR = 3e-5  # relative: what exp2.approx and the order of a sum may cost
_SAME = 0.98  # of a variable's numbers
_MANY = 0.3  # of the rows


def of_scores(hooks: Sequence[Hook]) -> Iterator[Meaning]:
    """The places of scores: those where other scores were tried."""
    for hook in hooks:
        scaled = abs(hook.factor - 1) > 1e-9 or hook.scale == 1
        for place in hook.places:
            yield Meaning("scaled S" if scaled else "S", place.file, place.line, place.variable,
                          "other scores put there gave their own attention in O")  # fmt: skip


def quantities(scores: Array, keep: Array, loops: Sequence[Loop]) -> dict[str, Array]:
    """The numbers of each kind, over all rows and steps of the loop over keys, rising.

    Args:
        scores: scale * (q . k), [B, Hq, Nq, Nk]; `keep`: which of them count.
    """
    count = scores.shape[-1]
    tile = loops[0].keys if loops else count
    ends = range(0, count, tile)
    tiles = list(ends)[::-1] if loops and loops[0].step < 0 else list(ends)
    rows = np.where(keep, scores, -np.inf).reshape(-1, count)
    most = np.full(len(rows), -np.inf)
    total = np.zeros(len(rows))
    found: dict[str, list[Array]] = {"m": [], "l": [], "alpha": []}
    with np.errstate(all="ignore"):
        for first in tiles:
            part = rows[:, first : first + tile]
            new = np.maximum(most, part.max(1))
            shrink = np.where(np.isfinite(most), np.exp(most - new), 0)
            weights = np.where(np.isfinite(part), np.exp(part - new[:, None]), 0).sum(1)
            most, total = new, total * shrink + weights
            found["m"].append(most)
            found["l"].append(total)
            found["alpha"].append(shrink)
        found["LSE"] = [most + np.log(total)]
    return {what: _sorted(np.concatenate(values)) for what, values in found.items()}


def _sorted(values: Array) -> Array:
    kept = values[np.isfinite(values) & (values != 0) & (values != 1)]
    return np.unique(kept)


def meanings(
    seen: Mapping[int, Track], looks: Sequence[Look | None], known: Mapping[str, Array],
    scale: float, rows: int,
) -> Iterator[Meaning]:  # fmt: skip
    """The places where a variable first holds one of the quantities.

    Args:
        known: of `quantities`; a maximum and an LSE may stand in any unit of the scores.
    """
    told: set[tuple[str, str, str]] = set()
    for number in sorted(seen):
        look, track = looks[number], seen[number]
        if look is None or track.kind not in (0, 1):
            continue
        for column in track.floats.T:
            got = _sorted(column[np.abs(column) < 1e30])
            what, name, share = _what(got, known, scale, rows)
            key = (look.at.function, look.expression, what)
            if what and key not in told:
                told.add(key)
                words = f"{share:.1%} of {len(got)} different numbers are {name}"
                yield Meaning(what, look.at.file, look.at.line, look.expression, words)


_NAMES = {"m": "a row's maximum over the first keys", "LSE": "a row's LSE",
          "l": "a row's sum of weights over the first keys",
          "alpha": "the factor between two maxima of a row"}  # fmt: skip


def _what(
    got: Array, known: Mapping[str, Array], scale: float, rows: int
) -> tuple[str, str, float]:
    if len(got) < max(_MANY * rows, 8):
        return "", "", 0.0
    for what, table in known.items():
        units = {1.0: ""}
        if what in ("m", "LSE"):
            units |= {1 / scale: " / scale", float(np.log2(np.e)): " * log2(e)"}
        for unit, words in units.items():
            share = _share(got, table * unit)
            if share >= _SAME:
                return what, _NAMES[what] + words, share
    return "", "", 0.0


def _share(got: Array, table: Array) -> float:
    """Which part of numbers is near one of a table's."""
    if not len(table):
        return 0.0
    at = np.clip(np.searchsorted(table, got), 1, len(table) - 1) if len(table) > 1 else 0
    nearest = np.minimum(np.abs(table[at] - got), np.abs(table[at - 1] - got))
    return float((nearest <= _NEAR * np.maximum(np.abs(got), 0.05)).mean())
