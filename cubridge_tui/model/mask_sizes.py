"""The sizes that a mask is drawn at: the failing run's, then those that show its structure best."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

from engine.cuir.nodes import Compare, Expr, Module, integers_in, walk_expr
from engine.cuir.static.device_scalars import DeviceScalars
from engine.errors import CuBridgeError
from engine.gates.analysis.tile_sizes import tiles_of
from engine.gates.deck import Tiles, quick_deck
from engine.service.views.keep_map import KeepMap
from engine.spec.recipes.recipe import Recipe

MOST_CELLS = 400  # rows or keys of a picture that shows pairs at first; a larger one shows tiles
GLANCE = {"B": 2, "Hq": 2, "Hkv": 1, "Nq": 4096, "Nk": 4096}  # what a mask opens at
SAMPLES = 9  # rows and keys that are looked at to see what a choice of sizes shows
_CASE = re.compile(r"B (\d+), heads (\d+)/(\d+), Nq (\d+), Nk (\d+)")

Sizes = dict[str, int]


def sizes_of_case(text: str) -> Sizes | None:
    """The sizes that a case of the deck names in words, as verdicts quote it."""
    found = _CASE.search(text)
    if found is None:
        return None
    return dict(zip(("B", "Hq", "Hkv", "Nq", "Nk"), map(int, found.groups()), strict=True))


def failing_case(details: Mapping[str, object]) -> Sizes | None:
    """The sizes of the run that a failed verdict ended with."""
    runs = details.get("runs")
    example = details.get("counterexample")
    texts = [str(example.get("case", ""))] if isinstance(example, Mapping) else []
    if isinstance(runs, Sequence) and runs and isinstance(runs[-1], Mapping):
        texts.append(str(runs[-1].get("case", "")))
    return next((s for text in texts if (s := sizes_of_case(text)) is not None), None)


def legal_sizes(recipe: Recipe, sizes: Mapping[str, int]) -> Sizes | None:
    """`sizes` bent as little as the spec's constraints ask for; None where nothing near is legal.

    Constraints tie sizes together (Nq == Nk, one head count) or to a number (Nk % 64 == 0).
    """
    scalars = DeviceScalars({}, {})
    tests = [scalars.compile(c) for c in recipe.constraints]
    for candidate in _bent(sizes, integers_in(recipe.constraints)):
        if all(test(dict(candidate)) for test in tests):
            return candidate
    return None


def _bent(sizes: Mapping[str, int], numbers: Sequence[int]) -> Iterator[Sizes]:
    long = max(sizes["Nq"], sizes["Nk"])
    for n in (0, *(n for n in numbers if n > 1)):
        # A multiple of the number, and the number itself.
        forms = ((None, None),) if not n else product((None, _multiple, _itself), repeat=2)
        for rows, keys in forms:
            for square, one_kv in product((False, True), repeat=2):
                out = dict(sizes)
                if square:
                    out |= {"Nq": long, "Nk": long}
                if one_kv:
                    out["Hkv"] = out["Hq"]
                out["Nq"] = rows(out["Nq"], n) if rows else out["Nq"]
                out["Nk"] = keys(out["Nk"], n) if keys else out["Nk"]
                yield out


def _multiple(length: int, n: int) -> int:
    return max(-(-length // n), 1) * n


def _itself(_: int, n: int) -> int:
    return n


def tiles(module: Module | None) -> Tiles:
    """The rows and keys that a kernel takes at a time, by its own text."""
    return (tiles_of(module) if module is not None else None) or Tiles(64, 64)


def choices(
    recipe: Recipe, head_dim: int, first: Mapping[str, int] | None, tile: Tiles
) -> list[Sizes]:
    """The sizes that the screen offers: the failing run's, then the deck's of a kernel that takes
    `tile` at a time, as G2 runs it; those that show the mask's structure come before the others.
    """
    deck = [bent for c in quick_deck(recipe.expressions(), tile)
            if c.Nq and c.Nk and (bent := legal_sizes(recipe, c.sizes)) is not None]  # fmt: skip
    deck.sort(key=lambda sizes: _interest(recipe, sizes, tile), reverse=True)
    if first and first.get("Nq") and first.get("Nk"):
        deck.insert(0, dict(first))
    if not deck:  # constraints that nothing here meets: the person types what they allow
        deck = [{"B": 1, "Hq": 1, "Hkv": 1, "Nq": 128, "Nk": 128}]
    out: list[Sizes] = []
    for sizes in deck:
        whole = sizes | {"D": head_dim, "Dv": head_dim}
        if whole not in out:
            out.append(whole)
    return out


def _interest(recipe: Recipe, sizes: Sizes, tile: Tiles) -> tuple[int, bool, int]:
    """How much of the mask these sizes show: how many outcomes of its comparisons, whether
    there are several tiles each way, and then the largest that fits a screen, else the squarest."""
    rows, keys = sizes["Nq"], sizes["Nk"]
    fits = max(rows, keys) <= MOST_CELLS
    several = rows > tile.rows and keys > tile.keys
    return outcomes(recipe, sizes), several, rows * keys if fits else min(rows, keys) - 10**9


def outcomes(recipe: Recipe, sizes: Sizes) -> int:
    """How many outcomes of the mask's comparisons are met at these sizes: two for each at most."""
    found = {node: None for node in walk_expr(recipe.keep) if isinstance(node, Compare)}
    return sum(_met(recipe, sizes, comparison) for comparison in found)


def _met(recipe: Recipe, sizes: Sizes, comparison: Expr) -> int:
    seen: set[bool] = set()
    try:
        picture = KeepMap(replace(recipe, keep=comparison), None, None, sizes)
        for i, j in product(_places(sizes["Nq"]), _places(sizes["Nk"])):
            seen.add(bool(picture.wanted(i, j)))
            if len(seen) == 2:
                break
    except (CuBridgeError, KeyError):  # a part that has no value of its own
        return 0
    return len(seen)


def _places(length: int) -> list[int]:
    """Places from the first to the last, more of them about the ends."""
    last = length - 1
    spread = {last * k // (SAMPLES - 1) for k in range(SAMPLES)}
    return sorted({p for p in (*spread, 1, last - 1) if 0 <= p <= last})
