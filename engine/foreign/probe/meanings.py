"""What else stands where: running maxima, sums and their factors, by the values that they take.

With random inputs a row's maximum over the first tiles, its sum of weights, the factor between two
maxima and its LSE are numbers that hardly anything else hits. A variable all of whose numbers are
among those of one kind holds that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.foreign.probe.coverage import Held
from engine.foreign.probe.observed import Look
from engine.foreign.probe.places import Hook, Loop, Meaning
from engine.foreign.probe.tracks import Track
from engine.ptx.floats import from_half

Array = np.ndarray[Any, Any]
_NEAR = 3e-5  # relative: what exp2.approx and the order of a sum may cost
_SAME = 0.98  # of a variable's numbers
_MANY = 0.3  # of the rows
_MOST_ROWS = 8  # of a thread
_DIFFERENT = 100  # weights, at least


def of_scores(hooks: Sequence[Hook]) -> Iterator[Meaning]:
    """The places of scores: those where other scores were tried."""
    for hook in hooks:
        scaled = abs(hook.factor - 1) > 1e-9 or hook.scale == 1
        for place in hook.places:
            yield Meaning("scaled S" if scaled else "S", place.file, place.line, place.variable,
                          "other scores put there gave their own attention in O")  # fmt: skip


def quantities(scores: Array, keep: Array, loops: Sequence[Loop]) -> tuple[dict[str, Array], Array]:
    """The numbers of each kind, over all rows and steps of the loop over keys, rising; and each
    pair's weight, exp of its score less its row's maximum up to the tile that it is in.

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
    weight = np.zeros(rows.shape)
    found: dict[str, list[Array]] = {"m": [], "l": [], "alpha": []}
    with np.errstate(all="ignore"):
        for first in tiles:
            part = rows[:, first : first + tile]
            new = np.maximum(most, part.max(1))
            shrink = np.where(np.isfinite(most), np.exp(most - new), 0)
            weights = np.where(np.isfinite(part), np.exp(part - new[:, None]), 0)
            weight[:, first : first + tile] = weights
            most, total = new, total * shrink + weights.sum(1)
            found["m"].append(most)
            found["l"].append(total)
            found["alpha"].append(shrink)
        found["LSE"] = [most + np.log(total)]
    sets = {what: _sorted(np.concatenate(values)) for what, values in found.items()}
    return sets, weight.reshape(-1)


_FORMS = {"f32": 1e-3, "bf16": 2.0**-7, "f16": 2.0**-9}  # and how far off a weight may be


def of_weights(
    seen: Mapping[int, Track], looks: Sequence[Look | None], weight: Array,
    parts: Sequence[tuple[Held, Track]],
) -> Iterator[Meaning]:  # fmt: skip
    """The variables that hold at each visit the weights of the pairs whose scores stand at a hook's
    place, in the same order: as floats, or two in a register.

    Args:
        weight: of each pair, as `quantities` has it.
        parts: what stands at each place of the hook.
    """
    told: set[tuple[str, str]] = set()
    for one, at in parts:
        order = np.argsort(at.key, kind="stable")
        wanted = np.where(one.pairs[order] >= 0, weight[one.pairs[order]], np.nan)
        for number in sorted(seen):
            look, track = looks[number], seen[number]
            if look is None or track.kind > 1 or len(track.key) != len(order):
                continue
            mine = np.argsort(track.key, kind="stable")
            if not np.array_equal(track.key[mine], at.key[order]):
                continue
            for form, near in _FORMS.items():
                got, which = _elements(track, form)
                which = which - (one.words[0] if form == "f32" else 0)
                inside = (which >= 0) & (which < wanted.shape[1])
                want, have = wanted[:, which[inside]], got[mine][:, inside]
                some = want > 1e-20
                good = np.abs(have - want)[some] <= near * want[some]
                key = (look.at.function, look.expression)
                if len(np.unique(want[some])) < _DIFFERENT or good.mean() < _SAME or key in told:
                    continue
                told.add(key)
                words = (
                    f"{good.mean():.1%} of {int(some.sum())} numbers ({form}) are the weights of "
                    f"the pairs whose scores stood at the place"
                )
                yield Meaning("P", look.at.file, look.at.line, look.expression, words)


def _elements(track: Track, form: str) -> tuple[Array, Array]:
    """[visits, elements] in float64, and the number of each element."""
    words = np.array(track.words)
    if form == "f32":
        return track.floats, words
    with np.errstate(all="ignore"):
        low, high = (
            from_half((track.bits >> shift & 0xFFFF).astype(np.uint16), form).astype(np.float64)
            for shift in (0, 16)
        )
    return np.concatenate([low, high], axis=1), np.concatenate([2 * words, 2 * words + 1])


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
            what, name, part = _what(got, known, scale, rows)
            key = (look.at.function, look.expression, what)
            if what and key not in told:
                told.add(key)
                words = f"{part:.1%} of {len(got)} different numbers are {name}"
                yield Meaning(what, look.at.file, look.at.line, look.expression, words)


@dataclass(frozen=True, slots=True)
class End:
    """A variable that holds each row's last maximum (`m`) or whole sum of weights (`l`) when a
    thread comes by for the last time; a maximum in a unit of the scores."""

    what: str
    look: int
    words: tuple[int, ...]
    unit: str
    times: float


def ends(
    seen: Mapping[int, Track], looks: Sequence[Look | None], scores: Array, keep: Array,
    scale: float,
) -> Iterator[End]:  # fmt: skip
    """The variables whose last numbers are all rows' maxima or sums.

    Args:
        scores: scale * (q . k), [B, Hq, Nq, Nk]; `keep`: which of them count.
    """
    rows = np.where(keep, scores, -np.inf).reshape(-1, scores.shape[-1])
    rows = rows[np.isfinite(rows).any(1)]
    most = rows.max(1)
    tables = {("l", "1", 1.0): np.exp(rows - most[:, None]).sum(1)}
    for unit, times in units(scale).items():
        tables["m", unit, times] = most * times
    for number in sorted(seen):
        track = seen[number]
        if looks[number] is None or track.kind not in (0, 1):
            continue
        if track.bits.shape[1] > _MOST_ROWS:
            continue
        for (what, unit, times), table in tables.items():
            if ended(track, table) >= _SAME:
                yield End(what, number, track.words, unit, times)


def ended(track: Track, table: Array) -> float:
    """Which part of what threads saw last is in a table of all rows, or of the table was seen: the
    smaller of the two. A thread may come by once for each of its rows."""
    got, rows = np.unique(last(track)), np.unique(table)
    return min(share(got, rows), share(rows, np.unique(track.floats)))


def always(end: End, track: Track, known: Mapping[str, Array]) -> bool:
    """Whether a variable holds a row's number each time that a thread comes by, over the keys of
    the tiles so far: what holds other things in between, another call's or a thread's own part, is
    no place to replace it.

    Args:
        known: of `quantities`.
    """
    got = _sorted(track.floats[np.abs(track.floats) < 1e30])
    return share(got, known[end.what] * end.times) >= _SAME


def last(track: Track) -> Array:
    """What each thread saw last: [threads, words]."""
    backwards = track.threads[::-1]
    return np.asarray(track.floats[::-1][np.unique(backwards, return_index=True)[1]])


def units(scale: float) -> dict[str, float]:
    """What a maximum may be times, over scale * (q . k), and how that is said."""
    return {"1": 1.0, "1 / scale": 1 / scale, "log2(e)": float(np.log2(np.e))}


_NAMES = {"m": "a row's maximum over the first keys", "LSE": "a row's LSE",
          "l": "a row's sum of weights over the first keys",
          "alpha": "the factor between two maxima of a row"}  # fmt: skip


def _what(
    got: Array, known: Mapping[str, Array], scale: float, rows: int
) -> tuple[str, str, float]:
    if len(got) < max(_MANY * rows, 8):
        return "", "", 0.0
    for what, table in known.items():
        for unit, times in units(scale).items() if what in ("m", "LSE") else [("1", 1.0)]:
            part = share(got, table * times)
            if part >= _SAME:
                words = "" if unit == "1" else f", times {unit}"
                return what, _NAMES[what] + words, part
    return "", "", 0.0


def share(got: Array, table: Array) -> float:
    """Which part of numbers is near one of a table's."""
    if not len(table) or not len(got):
        return 0.0
    at = np.clip(np.searchsorted(table, got), 1, len(table) - 1) if len(table) > 1 else 0
    nearest = np.minimum(np.abs(table[at] - got), np.abs(table[at - 1] - got))
    return float((nearest <= _NEAR * np.maximum(np.abs(got), 0.05)).mean())
