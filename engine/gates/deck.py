"""The inputs that the CPU gates run on: shapes off every tile edge, and flat and peaked logits.

Constants of a mask (a window of 1024, a prefix of 64) add shapes that reach past them, because a
deck that ends before the window does cannot see a wrong window.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from engine.cuir.nodes import Expr, integers_in
from engine.spec.decks.extreme_biases import PATTERNS
from engine.transfer.binding import SLOTS

MAX_CONSTANT = 8192
MAX_SQUARE = 2048  # as many rows as keys: both past a constant, which costs its square (3 s)
MOST_IN_TURN = 64  # heads in a section that a run can be afforded for (2 s)
MOST_TILES = 66  # `class_tiles` has at most 64 warps for one block of rows
SM_COUNT = 4  # fewer than any card has: some blocks take several pieces of work


@dataclass(frozen=True, slots=True)
class Case:
    """One run: sizes, how values are drawn, what is compared, on how many multiprocessors, and of
    how many partial tiles of a block of rows the mask may be kept as bits, where tiles are listed.
    """

    B: int
    Hq: int
    Hkv: int
    Nq: int
    Nk: int
    values: str = "random"  # or peaked, bias-inf, of `spec.decks` (`logit_levels`,
    # `extreme_biases`) or of `runs.tile_edges`
    modes: tuple[str, ...] = ("exact", "typed")
    probe_keep: bool = False  # recover the weights with one-hot V
    turn: int | None = None  # how ids and flags are drawn (`integer_draws`); None: by its place
    processors: int = SM_COUNT
    slots: int = SLOTS

    @property
    def sizes(self) -> dict[str, int]:
        return {"B": self.B, "Hq": self.Hq, "Hkv": self.Hkv, "Nq": self.Nq, "Nk": self.Nk}

    def __str__(self) -> str:
        shape = f"B {self.B}, heads {self.Hq}/{self.Hkv}, Nq {self.Nq}, Nk {self.Nk}"
        return shape if self.values == "random" else f"{shape}, {self.values}"


def in_turn(
    rows: int, keys: int, values: str = "random", modes: tuple[str, ...] = ("exact",),
    turn: int | None = None, batch: int = 1, slots: int = SLOTS,
) -> Case:  # fmt: skip
    """One head on one multiprocessor: blocks of rows are few, and where a kernel's block takes
    several pieces of work it takes them in turn, so that its stages and phases go round."""
    return Case(batch, 1, 1, rows, keys, values, modes, turn=turn, processors=1, slots=slots)


@dataclass(frozen=True, slots=True)
class Tiles:
    """How many query rows and keys the kernel takes at a time, and how many heads it takes in turn
    (its section) before the next ones."""

    rows: int
    keys: int
    heads: int = 1


UNKNOWN = Tiles(128, 64)  # a kernel whose text does not tell


def quick(tiles: Tiles | None = None) -> tuple[Case, ...]:
    """The quick deck: lengths of whole tiles, one more and one less, in rows and in keys.

    Both neighbours of a whole number of tiles matter: a tile that lacks one key is the one that a
    predicate off by one takes for full. Long runs have at least two tiles of keys. How ids are
    drawn follows from a case's place: new cases go to the end. Every other one has bits.
    """
    at = tiles or UNKNOWN
    short = max(at.keys - 1, 1)
    long = _whole(at.keys, 192)  # keys
    square = _whole(at.keys, 150)
    cases = (
        Case(1, 2, 1, 5, 7),
        Case(1, 2, 2, at.rows, at.keys, values="peaked"),
        Case(2, 2, 1, min(70, at.rows + 6), short, probe_keep=True),
        Case(1, 2, 1, at.rows + 1, long + 8),
        Case(1, 1, 1, 3, 0, modes=("exact",)),
        Case(1, 1, 1, 0, 5, modes=("exact",)),
        Case(1, 1, 1, 1, 130, probe_keep=True),
        Case(1, 1, 1, long + 1, long + 1, values="peaked"),
        Case(1, 1, 1, square - 1, square - 1, probe_keep=True),
        Case(1, 1, 1, max(at.rows - 1, 1), at.keys + 1),
        in_turn(2 * at.rows - 1, 2 * at.keys - 1),
        *sections(at),
    )
    return tuple(replace(c, slots=SLOTS if n % 2 else 1) for n, c in enumerate(cases))


def sections(tiles: Tiles) -> tuple[Case, ...]:
    """More heads than a section holds, in two batches, two to each head of keys: the second section
    begins at a multiple of its heads, and is not full. Each head has two blocks of rows, which are
    no two tiles of keys long, and both keep something where a mask is aligned at the ends."""
    if tiles.heads > MOST_IN_TURN:
        return ()
    kv = max(2, tiles.heads // 4 + 1)
    rows, keys = 2 * tiles.rows - 3, tiles.rows + 6
    return (Case(2, 2 * kv, kv, rows, keys, modes=("exact",)),)


def idle(tiles: Tiles) -> tuple[Case, ...]:
    """More heads than a section holds, each with three blocks of rows, of which a mask that is
    aligned at the ends leaves the first two nothing: a block takes a piece of work that has no tile
    before one that has some, also where none takes more than two. Without sections each block has a
    piece of its own."""
    if not 1 < tiles.heads <= MOST_IN_TURN:
        return ()
    heads = tiles.heads + 1
    return (Case(1, heads, heads, 3 * tiles.rows - 3, 9, modes=("exact",), processors=1),)


def _begun(tile: int, constant: int) -> int:
    """The least length, and a few more, whose last tile begins past a constant."""
    return (constant // tile + 1) * tile + 6


def _whole(tile: int, least: int) -> int:
    """The smallest whole number of tiles that is at least `least`, and two of them."""
    return tile * max(2, -(-least // tile))


REACH = 193  # what every quick deck is past


def constants(expressions: Iterable[Expr]) -> tuple[int, ...]:
    """Integer constants that may be a window, a prefix or a block, from the smallest on.

    One of no more than 8 is inside every case.
    """
    return tuple(c for c in integers_in(expressions) if c > 8)


def quick_deck(expressions: Iterable[Expr], tiles: Tiles | None = None) -> tuple[Case, ...]:
    """The quick deck, with cases past the constants of the recipe's expressions."""
    return (*quick(tiles), *past(constants(expressions), tiles))


def past(found: Iterable[int], tiles: Tiles | None = None) -> tuple[Case, ...]:
    """Cases past the constants: many keys for masks aligned at the ends, many rows for those
    aligned at the beginnings (a window over i - j has no effect on rows before its end), and both,
    for blocks and prefixes that a row and a key must be past together. The last block of rows
    begins past the constant too: a schedule counts from a block's first row. Beyond a window's
    width lie a block of rows and two tiles of keys, so that two blocks of rows begin at a tile
    other than the first, and at different ones."""
    within = [c for c in found if c <= MAX_CONSTANT]
    if not within:
        return ()
    at = tiles or Tiles(64, 64)
    reach, both = max(within), max((c for c in within if c <= MAX_SQUARE), default=0)
    wide = reach + at.rows + 2 * at.keys + 9
    band = at.rows + at.keys + 9
    square = max(both + 70, _begun(at.rows, both))
    return (
        in_turn(at.rows + 9, wide),
        in_turn(reach + at.rows + band, band),
        *((in_turn(square, square),) if both + 3 > REACH else ()),
    )


def edges(found: Iterable[int], tiles: Tiles | None = None) -> tuple[Case, ...]:
    """Lengths at which a tile of keys lacks one pair for being full: its last key for the first
    row, where a mask ends at the diagonal or a window's width beyond it, and its first key for the
    last row, where it begins a window's width before. A width of c may be written as one less. A
    predicate that is off by one takes such a tile for full, and is right nearly everywhere else."""
    keys = (tiles or Tiles(128, 64)).keys
    sizes = [(9, 2 * keys + 7)]
    for c in [c for c in found if c <= MAX_SQUARE][-1:]:
        for one in (0, 1):
            sizes += [(9, keys + c - one + 2), (c + 9, 2 * keys + 7 + one)]
    return tuple(in_turn(rows, n, turn=0) for rows, n in sizes)


def listed(tile: int | None) -> tuple[Case, ...]:
    """One block of rows with more tiles of keys, of `tile` keys each, than the kernels that make
    tile lists have warps for; nothing where a target keeps none."""
    if tile is None:
        return ()
    return (in_turn(20, MOST_TILES * tile + 3, turn=1, slots=1),)


def far(tiles: Tiles | None = None) -> tuple[Case, ...]:
    """Rows of logits that are all very negative, all very positive, and of both kinds, in one tile
    and from tile to tile: few rows in both modes, and more in float64."""
    keys = 2 * (tiles or Tiles(128, 64)).keys + 22
    return (
        Case(1, 2, 1, 20, keys, values="level", turn=0),
        in_turn(keys, keys, "far", turn=0, slots=1),
    )


def extremes(tiles: Tiles | None = None) -> tuple[Case, ...]:
    """A bias at the ends of its type, a pattern each; two whole tiles of keys and more."""
    keys = 2 * (tiles or Tiles(128, 64)).keys + 22
    return tuple(Case(1, 2, 1, 9, keys, values=name, turn=n) for n, name in enumerate(PATTERNS))


# The sum of a row's weights is at most its keys: where all logits are the same it is that many.
LONG_SUM = in_turn(1, 20_500, "even", turn=0)


def beyond(found: Iterable[int]) -> str:
    """What no run of the deck reaches, in words that a verdict ends with; empty where all is."""
    listed = sorted(found)
    far = [c for c in listed if c > MAX_CONSTANT]
    wide = [c for c in listed if MAX_SQUARE < c <= MAX_CONSTANT]
    words = []
    if far:
        words.append(f"no run reaches past {_listed(far)}")
    if wide:
        words.append(f"no run has both rows and keys past {_listed(wide)}")
    return "; ".join(words)


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))
