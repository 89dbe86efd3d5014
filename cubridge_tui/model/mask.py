"""A mask as cells: which glyph stands for which pairs, row by row, computed a little at a time.

A cell of the pair view holds two query rows of one key. Its glyph says what the target keeps, so
the picture needs no colours: `█` both rows in a full tile, `▓` both in a partial tile, `▀` and `▄`
one of them, a blank neither, `·` where no tile is visited. `+` is a pair that only the target
keeps, `-` one that only the spec keeps, `×` stands where a cell has both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from engine.service.views.keep_map import KeepMap, Pair
from engine.service.views.target_mask import TileClass

LARGE = 400  # query rows from which on they are not computed one after another
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


def legend(differs: bool, width: int, shares: Mapping[str, str]) -> list[Entry]:
    """What the glyphs of a picture mean, and the share of tiles (by glyph) that look so, in words
    that fit the width; in a narrow one the signs of what differs take the place of the shares."""
    seen = [each for each in _LEGEND if differs or each[0] not in "+-×"]
    short = [(glyph, style, few) for glyph, style, _, few in seen]
    for entries in ([each[:3] for each in seen], short):
        told = [(g, s, f"{words} {shares.get(g, '')}".rstrip()) for g, s, words in entries]
        if sum(len(glyph) + len(words) + 3 for glyph, _, words in told) <= width:
            return told
    return short


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
        self._order = self._spread()
        self.wrong: dict[int, int] = {}  # failing row -> its first wrong key
        self._differ: dict[tuple[int, int], set[bool]] = {}  # tile -> which side keeps its pairs
        self.empty: set[int] = set()
        self._parts: set[int] = set()  # of whose tiles the classes are known
        self.counts: Counter[TileClass] = Counter()  # of their tiles
        self.kept = 0  # pairs that the spec keeps, in the rows that are known

    def compute_tiles(self, part: int) -> None:
        """Learn what the schedule does with the tiles of a part: `rows` rows from `part * rows`."""
        if part not in self._parts and 0 <= part < self.tiles[0]:
            self._parts.add(part)
            keys = range(0, self.keys, self.columns)
            self.counts.update(self.tile_class(part * self.rows, j) for j in keys)

    @property
    def next_part(self) -> int | None:
        """A part whose tiles are not known yet."""
        return next((p for p in range(self.tiles[0]) if p not in self._parts), None)

    def knows(self, part: int) -> bool:
        return part in self._parts

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
            i = next((row for row in self._order if row not in self._pairs), None)
        if i is None:
            return None
        pairs = self.picture.row(i)
        self._pairs[i] = pairs
        for j, pair in enumerate(pairs):
            if not pair.same:
                self.wrong.setdefault(i, j)
                tile = (i // self.rows, j // self.columns)
                self._differ.setdefault(tile, set()).add(pair.wanted)
        kept = sum(pair.wanted for pair in pairs)
        self.kept += kept
        if not kept:
            self.empty.add(i)
        self.compute_tiles(i // self.rows)
        return i

    def _spread(self) -> Iterator[int]:
        """All rows in order; of a large mask the first and last one of each part before others."""
        if self.queries > LARGE:
            step = self.rows
            yield from range(step - 1, self.queries, step)
            while step > 1:
                yield from range(0, self.queries, step)
                step //= 2
        yield from range(self.queries)

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

    def group_cell(self, blocks: range, tiles: range) -> Cell:
        """The cell of several tiles: what differs first, then what is partial or of two kinds."""
        cells = {self.tile_cell(b, n) for b in blocks for n in tiles}
        if len(cells) == 1:
            return cells.pop()
        glyphs = {c.glyph for c in cells}
        wrong = next((c for c in cells if c.style == "fail"), None)
        if wrong is not None:
            return Cell("×", "fail") if len(glyphs & set("+-×")) > 1 else wrong
        return Cell("…", "dim") if "…" in glyphs else Cell("▓", "mask.partial")

    def tile_cell(self, block: int, n: int) -> Cell:
        """The cell of a whole tile."""
        i, j = block * self.rows, n * self.columns
        differ = self._differ.get((block, n))
        if differ:
            return Cell(_sign(differ), "fail")
        if not self.knows(block):
            return Cell("…", "dim")
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
        tile = f"tile n={n} of rows {block * self.rows} on: "
        if not self.knows(block):
            return f"i={i} j={j}  {tile}not known yet"
        steps = self.picture.steps(i)
        order = f", visited {steps.index(n) + 1} of {len(steps)}" if n in steps else ""
        tile += f"{self.tile_class(i, j)}{order}"
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
