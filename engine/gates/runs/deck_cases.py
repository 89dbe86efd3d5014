"""The cases of the deck that fit a module and its spec.

Runs in the torch child only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import cycle

from engine.cuir.nodes import Module, Num
from engine.cuir.printer import print_module
from engine.gates.analysis.size_comparisons import affordable, cases_past, compared, thresholds
from engine.gates.analysis.tile_sizes import tiles_of
from engine.gates.deck import (
    LONG_SUM,
    MAX_SQUARE,
    MOST_IN_TURN,
    MOST_TILES,
    UNKNOWN,
    Case,
    Tiles,
    constants,
    edges,
    extremes,
    far,
    idle,
    in_turn,
    listed,
    past,
    quick,
)
from engine.gates.runs.case_run import removable
from engine.gates.runs.nan_inputs import under_mask_cases
from engine.gates.runs.subject import Subject
from engine.spec.decks.extreme_biases import biases
from engine.spec.decks.integer_draws import FLAGS, IDS, all_equal
from engine.transfer.binding import SLOTS
from engine.transfer.bounds import reads_pairs
from engine.transfer.workspace import launch_constants

# How far beyond the deck's largest sizes the unforeseen ones may go: half a second of runs each.
MORE_KEYS, MORE_ROWS = 2500, 900
DRAWS = max(len(IDS), len(FLAGS))
MANY_HEADS = 16  # at least so many and more, whatever the module takes in turn
BIAS_CASE = Case(1, 2, 1, 70, 200, values="bias-inf", modes=("exact",))


def legal_cases(subject: Subject, names: Iterable[int], more: Sequence[Case] = ()) -> list[Case]:
    """The quick deck, cases past the numbers `names` and past the module's own comparisons of
    sizes; bent to what the spec allows (Nq == Nk, one head count, ...).

    What somebody wrote with a free hand runs at sizes besides that follow from its own text.
    """
    tiles = tiles_of(subject.module)
    deck = (*quick(tiles), *past(names, tiles), *more)
    lists = listed(listed_tile(subject))
    farther = cases_past(thresholds(subject.module), deck, tiles)
    # By the recipe's own numbers: a wrong one of the module would hide what it does.
    close = edges(constants(subject.recipe.expressions()), tiles)
    deck = (*deck, *lists, *farther, *far(tiles), *close)
    out = _allowed(subject, deck, lists, farther)
    if subject.watch is not None:
        # Beyond what runs, not beyond what was dropped: a spec may allow squares alone.
        more = (*unforeseen(subject.module, out), LONG_SUM)
        out += _allowed(subject, more, (LONG_SUM,), ())
    return list(dict.fromkeys(out))


def _allowed(
    subject: Subject, deck: Sequence[Case], long: Sequence[Case], farther: Sequence[Case]
) -> list[Case]:
    """The cases as the spec allows them, but for those of `long` and `farther` that become squares
    that cost too much."""
    out: list[Case] = []
    for case in deck:
        found = bent(subject, case)
        if found is None:
            continue
        costly = (case in long and found.Nq > MAX_SQUARE) or (
            case in farther and not affordable(found)
        )
        if not costly:
            out.append(found)
    return out


def bent(subject: Subject, case: Case) -> Case | None:
    """The case with the fewest changes that the spec allows; None where it allows none."""
    case = subject.at_fixed(case)
    square = max(case.Nq, case.Nk)
    tried = (
        case,
        replace(case, Nq=case.Nk, Nk=case.Nq),
        replace(case, Nq=square, Nk=square),
        replace(case, Hkv=case.Hq),
        replace(case, Nq=square, Nk=square, Hkv=case.Hq),
        replace(case, B=1),
        replace(case, B=1, Nq=square, Nk=square),
    )
    return next((one for one in tried if subject.allows(one)), None)


def read_cases(subject: Subject) -> list[Case]:
    """The deck of a spec whose recipe was read."""
    more: tuple[Case, ...] = ()
    if removable(subject.recipe):
        more = (BIAS_CASE,)
    if biases(subject.recipe):
        more = (*more, *extremes(tiles_of(subject.module)))
    if reads_pairs(subject.recipe.keep):
        more = (*more, *data_cases(tiles_of(subject.module)))
    if subject.recipe.keep != Num(True):
        own = constants(subject.recipe.expressions())
        more = (*more, *under_mask_cases(tiles_of(subject.module), own))
        # As it is: made square, where a spec allows no other, each row would keep something.
        more = (*more, *filter(subject.allows, idle(tiles_of(subject.module) or UNKNOWN)))
    return legal_cases(subject, constants_of(subject), more)


def data_cases(tiles: Tiles | None) -> tuple[Case, ...]:
    """For a mask that reads inputs: ids and flags drawn in each of the ways that there are, with
    more rows than keys and with more keys than rows, in two blocks of rows and tiles of keys; the
    first two ways in two batches, drawn unlike each other, with bits and without; and for few rows
    several tiles of which the mask says the same: all, or none, need no bits.

    A draw's mask is kept as bits for one of the two, and asked for again for the other.
    """
    at = tiles or UNKNOWN
    tall = (at.rows + 40, at.keys + 9)
    wide = (at.rows + 9, at.keys * (1 + -(-at.rows // at.keys)))  # the last tile may be whole
    equal = IDS.index(all_equal)
    return (
        *(
            in_turn(*lengths, turn=turn, batch=2 if turn < 2 else 1, slots=slots)
            for lengths, bits in ((tall, (1, SLOTS)), (wide, (SLOTS, 1)))
            for turn, slots in zip(range(DRAWS), cycle(bits))
        ),
        in_turn(3, 4 * at.keys, turn=equal, slots=1),
        in_turn(3, 4 * at.keys, turn=equal + len(IDS)),
    )


def unforeseen(module: Module, deck: Sequence[Case]) -> tuple[Case, ...]:
    """Sizes that follow from the module's own text, so that no edit can be made for them: among
    those of the deck and beyond its largest, in keys, in rows, in batches and in heads; and more
    heads than two sections hold, in two batches that share keys, with several blocks of rows each,
    of which some keep nothing."""
    digest = hashlib.sha256(print_module(module).encode()).digest()
    numbers = [int.from_bytes(digest[k : k + 2]) for k in range(0, 32, 2)]
    group, kv = ((2, 1), (1, 2), (3, 1), (2, 2))[numbers[0] % 4]
    keys = max((c.Nk for c in deck), default=0) + 1 + numbers[1] % MORE_KEYS
    rows = max((c.Nq for c in deck), default=0) + 1 + numbers[2] % MORE_ROWS
    exact = ("exact",)
    tiles = tiles_of(module) or UNKNOWN
    block, square = tiles.rows, tiles.rows + 1 + numbers[15] % 60
    many = max(min(2 * tiles.heads, 2 * MOST_IN_TURN), MANY_HEADS) // 4 + 1 + numbers[12] % 3
    few = 9 + numbers[14] % 60  # keys: where the last query sees the last, two blocks keep none
    return (
        Case(1 + numbers[3] % 2, group * kv, kv, 9 + numbers[4] % 150, 9 + numbers[5] % 150,
             modes=exact),
        in_turn(9 + numbers[6] % 40, keys),
        in_turn(rows, 9 + numbers[7] % 40),
        Case(3 + numbers[8] % 5, 1, 1, 2 + numbers[9] % 8, 9 + numbers[10] % 60, modes=exact),
        Case(1, 5 + numbers[11] % 20, 1, 2 + numbers[9] % 8, 9 + numbers[10] % 60, modes=exact),
        Case(2, 2 * many, many, 2 * block + few + numbers[13] % 40, few, modes=exact),
        Case(2, 2 * many, many, square, square, modes=exact),
    )  # fmt: skip


def drawn_cases(tiles: Tiles | None) -> tuple[Case, ...]:
    """Longer draws of ids and flags, padding at the end first: a third of these rows, with a whole
    tile of keys and a block of rows behind it in that third."""
    at = tiles or UNKNOWN
    n = 3 * at.keys * (1 + -(-at.rows // at.keys))
    return tuple(in_turn(n, n, turn=turn) for turn in (6, 3, 2))


def constants_of(subject: Subject) -> list[int]:
    """The constants of the recipe, and those that the module compares with and the recipe lacks.

    A rewritten comparison (`<= c - 1`, `< c + 1`) is the recipe's own.
    """
    own = constants(subject.recipe.expressions())
    more = constants(compared(subject.module))
    return sorted({*own, *(c for c in more if not any(abs(c - o) <= 1 for o in own))})


def listed_tile(subject: Subject) -> int | None:
    """Keys in a tile of the lists that the target makes; None where it makes none."""
    if subject.binding.workspace is None:
        return None
    return launch_constants(subject.module, subject.binding).get("BN")


def unlisted(subject: Subject, deck: list[Case]) -> str:
    """Words where no run lists as many tiles as there are warps for, because it must be square."""
    tile = listed_tile(subject)
    most = max((-(-c.Nk // tile) for c in deck), default=0) if tile else MOST_TILES
    return "" if most >= MOST_TILES else f"no run lists more than {most} tiles"
