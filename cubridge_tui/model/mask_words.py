"""What the mask screen says about a picture, and what a person may type there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cubridge_tui.model import mask_values
from cubridge_tui.model.mask import MaskGrid
from engine.service.views.keep_map import KeepMap
from engine.service.views.target_mask import TileClass
from engine.spec.recipes.kept_pairs import mask_inputs
from engine.spec.recipes.recipe import Recipe

SCHEDULE = "the tile schedule"  # what the prover's goals of a mask are about
LARGEST = 4096  # rows or keys that a person may type
Words = list[tuple[str, str]]  # texts with their styles


def heading(title: str, grid: MaskGrid, sizes: Mapping[str, int], b: int, h: int) -> Words:
    """Which mask it is: of what, at which sizes, in which tiles."""
    shape = f"b={b} h={h}  Nq {sizes['Nq']}, Nk {sizes['Nk']}"
    tile = f"tiles of {grid.rows} rows x {grid.columns} keys"
    target = grid.picture.target
    if target is not None and target.rows > grid.rows:
        tile += f", {target.rows} rows a block"
    return [(" MASK ", "title"), (title, ""), (f"  {shape}  {tile}", "dim")]


def finding(grid: MaskGrid, problem: str, undecided: int) -> Words:
    """How spec and target compare; with `undecided` hunks they need not agree yet."""
    if problem:
        return [(f" {problem}", "stale")]
    left = f"  {grid.known} of {grid.queries} rows compared" if not grid.done else ""
    if grid.wrong and undecided:
        rows = _count(len(grid.wrong), "row")
        hunks = _count(undecided, "hunk")
        text = f" {rows} of the target as decided so far differ{'s' * (len(grid.wrong) == 1)}"
        return [(text, "stale"), (f": {hunks} undecided{left}", "dim")]
    if grid.wrong:
        return [(f" × {_count(len(grid.wrong), 'failing row')}", "fail"), (left, "dim")]
    if grid.picture.target is None:
        return [(" the spec's own mask: there is no target in CuIR", "dim")]
    if not grid.done:
        return [(" no failing row so far", "dim"), (left, "dim")]
    return [(" ✓ ", "pass"), (f"all {grid.queries} rows keep what the spec keeps", "")]


def shares(grid: MaskGrid) -> dict[str, str]:
    """How many of the tiles the schedule takes whole, masks and skips, by the legend's glyphs."""
    every = max(sum(grid.counts.values()), 1)
    each = (("█", TileClass.FULL), ("▓▀▄", TileClass.PARTIAL), ("·", TileClass.SKIP))
    return {glyph: f"{100 * grid.counts[kind] / every:.0f}%" for glyph, kind in each}


def kept(grid: MaskGrid) -> str:
    """The share of pairs that the spec keeps, or that not all tiles are counted yet."""
    if grid.done:
        return f"pairs kept {100 * grid.kept / max(grid.known * grid.keys, 1):.0f}%"
    return "" if grid.next_part is None else "so far"


def proven(details: Mapping[str, Any]) -> str:
    """The goals of the tile schedule that are proven for all sizes."""
    found = details.get("proofs")
    goals = [
        str(p.get("goal"))
        for p in (found if isinstance(found, list) else ())
        if isinstance(p, Mapping) and p.get("answer") == "proven" and p.get("about") == SCHEDULE
    ]
    return f" proven for all sizes: {'; '.join(dict.fromkeys(goals))}" if goals else ""


def executed(details: Mapping[str, Any]) -> str:
    """What is known of a kernel that is executed as PTX: which tiles it visits is not."""
    work = details.get("work")
    if not isinstance(work, Mapping):
        return ""
    cases = _count(int(work["cases"]), "case")
    return (
        f" executed as PTX: {work['before']:,} thread instructions of the source, "
        f"{work['after']:,} of the patch in the same {cases}; its tiles are not drawn"
    )


def values(recipe: Recipe, given: Mapping[str, str], picture: KeepMap) -> str:
    """What the inputs that the mask reads are drawn as: a person's values, and the examples."""
    own: list[str] = []
    examples: list[str] = []
    for item, words in zip(mask_inputs(recipe), picture.examples(), strict=True):
        text = given.get(item.name, "")
        typed = bool(text) and not mask_values.problem(item, text)
        (own if typed else examples).append(words)
    parts = [f"your values: {'; '.join(own)}"] if own else []
    parts += [f"example values: {'; '.join(examples)}"] if examples else []
    return "  ".join(parts)


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'s' * (number != 1)}"


def numbers(text: str) -> list[int]:
    """A pair as it is typed: apart by blanks or a comma, as the page itself and other tools do."""
    return [int(word) for word in _apart(text)]


def size_problem(text: str) -> str:
    """Why a text is no two sizes; empty: it is."""
    return _problem(text, 1)


def place_problem(text: str) -> str:
    """Why a text is no two places, from 0 on; empty: it is."""
    return _problem(text, 0)


def _apart(text: str) -> list[str]:
    return text.replace(",", " ").split()


def _problem(text: str, low: int) -> str:
    words = _apart(text)
    if len(words) != 2 or not all(w.isascii() and w.isdigit() for w in words):
        return "two whole numbers, such as 128 256"
    if not all(low <= int(w) <= LARGEST for w in words):
        return f"numbers from {low} to {LARGEST}"
    return ""
