"""A mask as cells: which glyph stands for which pairs, row by row, computed a little at a time.

A cell of the pair view holds two query rows of one key. Its glyph says what the target keeps, so
the picture needs no colours: `█` both rows in a full tile, `▓` both in a partial tile, `▀` and `▄`
one of them, a blank neither, `·` where no tile is visited. `+` is a pair that only the target
keeps, `-` one that only the spec keeps, `×` stands where a cell has both.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.service.keep_map import KeepMap, Pair
from engine.service.target_mask import TileClass

Entry = tuple[str, str, str]  # glyph, the palette's style, words

# Glyph, style, words, and words for a narrow screen.
_LEGEND = (
    ("□", "match.current", "here", "here"),
    ("█", "mask.full", "full tile", "full"),
    ("▓▀▄", "mask.partial", "partial tile", "partial"),
    ("·", "dim", "not visited", "skipped"),
    ("+", "fail", "target only", "target"),
    ("-", "fail", "spec only", "spec"),
    ("×", "fail", "both", "both"),
    ("∅", "stale", "empty row", "empty"),
)


def legend(differs: bool, width: int) -> list[Entry]:
    """What the glyphs of a picture mean, in words that fit the width."""
    seen = [each for each in _LEGEND if differs or each[0] not in "+-×"]
    needed = sum(len(glyph) + len(words) + 3 for glyph, _, words, _ in seen)
    return [(g, style, words if needed <= width else few) for g, style, words, few in seen]


@dataclass(frozen=True, slots=True)
class Cell:
    """One glyph and the palette's style for it."""

    glyph: str
    style: str


class MaskGrid:
    """The rows of a mask that are known so far."""

    def __init__(self, picture: KeepMap) -> None:
        self.picture = picture
        self.queries, self.keys = picture.queries, picture.keys
        self.rows, self.columns = picture.tile
        self._pairs: dict[int, list[Pair]] = {}
        self._classes: dict[tuple[int, int], TileClass] = {}
        self._next = 0
        self.wrong: dict[int, int] = {}  # failing row -> its first wrong key
        self._differ: dict[tuple[int, int], set[bool]] = {}  # tile -> which side keeps its pairs
        self.empty: set[int] = set()

    @property
    def known(self) -> int:
        """How many rows are computed."""
        return len(self._pairs)

    @property
    def done(self) -> bool:
        return len(self._pairs) >= self.queries

    def compute(self, i: int | None = None) -> int | None:
        """Compute a row: `i`, or the next one that is not known; which one it was."""
        if i is None or i in self._pairs or not 0 <= i < self.queries:
            while self._next in self._pairs:
                self._next += 1
            i = self._next
        if i >= self.queries:
            return None
        pairs = self.picture.row(i)
        self._pairs[i] = pairs
        for j, pair in enumerate(pairs):
            if not pair.same:
                self.wrong.setdefault(i, j)
                tile = (i // self.rows, j // self.columns)
                self._differ.setdefault(tile, set()).add(pair.wanted)
        if not any(pair.wanted for pair in pairs):
            self.empty.add(i)
        return i

    def pair(self, i: int, j: int) -> Pair | None:
        """What is known of a pair."""
        row = self._pairs.get(i)
        return row[j] if row is not None and 0 <= j < len(row) else None

    def tile_class(self, i: int, j: int) -> TileClass:
        key = (i // self.rows, j // self.columns)
        found = self._classes.get(key)
        if found is None:
            found = self._classes[key] = self.picture.tile_class(i, j)
        return found

    # --- cells -----------------------------------------------------------------------------------

    def pair_cell(self, i: int, j: int) -> Cell:
        """The cell of key j for query rows i and i + 1."""
        upper, lower = self.pair(i, j), self.pair(i + 1, j)
        if upper is None and i < self.queries:
            return Cell("…", "dim")
        both = [p for p in (upper, lower) if p is not None]
        differ = {p.wanted for p in both if not p.same}
        if differ:
            return Cell(_sign(differ), "fail")
        top = upper is not None and upper.got
        bottom = lower.got if lower is not None else False
        kind = self.tile_class(i, j)
        if not top and not bottom:
            skipped = kind is TileClass.SKIP
            return Cell("·" if skipped else " ", "dim")
        full = kind is TileClass.FULL
        style = "mask.full" if full else "mask.partial"
        if top and bottom:
            return Cell("█" if full else "▓", style)
        return Cell("▀" if top else "▄", style)

    def tile_cell(self, block: int, n: int) -> Cell:
        """The cell of a whole tile."""
        i, j = block * self.rows, n * self.columns
        differ = self._differ.get((block, n))
        if differ:
            return Cell(_sign(differ), "fail")
        match self.tile_class(i, j):
            case TileClass.FULL:
                return Cell("█", "mask.full")
            case TileClass.PARTIAL:
                return Cell("▓", "mask.partial")
            case _:
                return Cell("·", "dim")

    @property
    def tiles(self) -> tuple[int, int]:
        """Blocks of rows, tiles of keys."""
        return -(-self.queries // self.rows), -(-self.keys // self.columns)

    # --- words -----------------------------------------------------------------------------------

    def describe(self, i: int, j: int) -> str:
        """What is at (i, j), in words."""
        pair = self.pair(i, j)
        block, n = i // self.rows, j // self.columns
        tile = f"tile n={n} of rows {block * self.rows} on: {self.tile_class(i, j)}"
        if pair is None:
            return f"i={i} j={j}  {tile}"
        verbs = {True: "keeps", False: "masks"}
        if pair.same:
            return f"i={i} j={j}  {'kept' if pair.got else 'masked'} by spec and target  {tile}"
        differ = f"the spec {verbs[pair.wanted]} it, the target {verbs[pair.got]} it"
        return f"i={i} j={j}  {differ}  {tile}"

    def next_wrong(self, i: int, step: int) -> int | None:
        """The failing row after (1) or before (-1) row i, round the end."""
        rows = sorted(self.wrong)
        if not rows:
            return None
        if step > 0:
            return next((r for r in rows if r > i), rows[0])
        return next((r for r in reversed(rows) if r < i), rows[-1])


def _sign(kept_by_spec: set[bool]) -> str:
    """What stands for pairs that one side alone keeps."""
    return "×" if len(kept_by_spec) == 2 else "-" if True in kept_by_spec else "+"
