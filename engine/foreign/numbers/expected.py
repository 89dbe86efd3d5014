"""What a spec's softmax attention makes on its way in one case: a table for each kind of number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
LOG2E = float(np.log2(np.e))
PRODUCTS, SCORES, MASK = "the products q . k", "the scores", "the mask"
MAXIMA, WEIGHTS, SUMS = "the rows' maxima", "the weights", "the rows' sums"
LSE, OUT = "the LSE", "O"
# What each kind is made of.
MADE_OF = {SCORES: (PRODUCTS,), MASK: (SCORES,), MAXIMA: (SCORES, MASK), SUMS: (WEIGHTS, MAXIMA),
           WEIGHTS: (SCORES, MASK, MAXIMA), LSE: (MAXIMA, SUMS), OUT: (WEIGHTS, SUMS)}  # fmt: skip
CHAIN = (SCORES, MAXIMA, WEIGHTS, SUMS, OUT)  # what each kernel has, in some form
_TILES = (8, 16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256)  # keys


@dataclass(frozen=True, slots=True)
class Attention:
    """One case of a spec in float64.

    Args:
        products: q . k, [B, Hq, Nq, Nk]; `scores`: what the softmax takes of it.
        keep: which pairs count.
        o: [B, Hq, Nq, Dv].
    """

    products: Array
    scores: Array
    keep: Array
    o: Array

    @property
    def scale(self) -> float | None:
        """What the scores are times of the products; None where the spec changes them otherwise."""
        some = np.abs(self.products) > np.abs(self.products).max(initial=0) / 2
        if not some.any():
            return None
        ratio = float(np.median(self.scores[some] / self.products[some]))
        same = np.allclose(self.scores, self.products * ratio, rtol=1e-9, atol=1e-9)
        return ratio if same else None


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of number, each with its place in `axes`.

    Args:
        forms: the numbers in each form that a kernel may have them in, by what is said of it.
        near: how far off a number may be, of its size; `far`: from where on it is another one.
        ends: a thread's last numbers count alone: those before are of a part of the keys.
        needed: the places that a kernel has to have; a pair that is dropped needs no score.
        floor: what of their mean size is added to each one's for `near` and `far`: sums cancel.
    """

    name: str
    axes: str
    forms: Mapping[str, Array]
    near: float
    far: float
    needed: Array
    ends: bool = False
    floor: float = 0.02


def kinds(spec: Attention) -> Iterator[Kind]:
    """The kinds in the order in which one is made of the other."""
    scale = spec.scale
    units = {"": 1.0, "times log2(e)": LOG2E}
    plain = {} if scale in (None, 0.0, 1.0) else {"before the scale": 1.0 / (scale or 1.0)}
    if scale is None:
        yield Kind(PRODUCTS, "bhij", _times(spec.products, units), 1e-5, 3e-5, spec.keep)
    yield Kind(SCORES, "bhij", _times(spec.scores, units | plain), 1e-5, 3e-5, spec.keep)
    rows = np.where(spec.keep, spec.scores, -np.inf)
    live: Array = np.asarray(spec.keep.any(-1))
    with np.errstate(all="ignore"):
        most = rows.max(-1, initial=-np.inf)
        total = np.exp(rows - most[..., None]).sum(-1)
        lse = most + np.log(total)
        yield Kind(MAXIMA, "bhi", _times(most, units | plain), 1e-5, 3e-5, live, True)
        yield Kind(WEIGHTS, "bhij", _weights(rows, most, lse), 3e-5, 1e-4, spec.keep, floor=0.0)
        sums = {"": total, "without a maximum": np.exp(lse)}
        yield Kind(SUMS, "bhi", sums, 1e-4, 3e-4, live, True)
        yield Kind(LSE, "bhi", _times(lse, units), 1e-5, 3e-5, live, True)
        held = {"before the division": spec.o * total[..., None], "": spec.o}
        yield Kind(OUT, "bhid", held, 1e-4, 1e-3,
                   np.broadcast_to(live[..., None], spec.o.shape), True)  # fmt: skip


def _times(values: Array, units: Mapping[str, float]) -> dict[str, Array]:
    return {said: values * by for said, by in units.items()}


def _weights(rows: Array, most: Array, lse: Array) -> dict[str, Array]:
    """By the row's maximum over all keys, by its sum, or by its maximum up to the end of a tile."""
    count = rows.shape[-1]
    forms = {"": np.exp(rows - most[..., None])}
    forms["after the division"] = np.exp(rows - lse[..., None])
    for tile in _TILES:
        if tile >= count:
            break
        starts = np.arange(0, count, tile)
        parts = np.maximum.reduceat(rows, starts, axis=-1)
        for said, running in (
            ("", np.maximum.accumulate(parts, -1)),
            (" from the last key on", np.maximum.accumulate(parts[..., ::-1], -1)[..., ::-1]),
        ):
            each = np.repeat(running, tile, axis=-1)[..., :count]
            forms[f"by the maximum so far, tiles of {tile}{said}"] = np.exp(rows - each)
    return forms
