"""The cases of the deck that fit a module and its spec.

Runs in the torch child only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace

from engine.cuir.nodes import Module, Num
from engine.cuir.printer import print_module
from engine.gates.deck import (
    LONG_SUM,
    MAX_SQUARE,
    MOST_TILES,
    Case,
    Tiles,
    constants,
    edges,
    extremes,
    far,
    listed,
    past,
    quick,
)
from engine.gates.running import removable
from engine.gates.sizes import affordable, cases_past, compared, thresholds, tiles_of
from engine.gates.subject import Subject
from engine.gates.under_mask import under_mask_cases
from engine.spec.extremes import biases
from engine.transfer.ranges import reads_pairs
from engine.transfer.workspace import launch_constants

# A mask that reads inputs: batches that differ, several blocks of rows and tiles of keys; two runs
# in a row, of which one has its mask's bits for one tile only.
# Sorted runs, as models mostly have them; then each batch in a way of its own.
DATA_CASES = tuple(
    Case(b, 2, 1, n, n, modes=("exact",), turn=turn)
    for b, n, turn in ((2, 260, 0), (2, 261, 0), (3, 259, 2))
)
# How far beyond the deck's largest sizes the unforeseen ones may go: half a second of runs each.
MORE_KEYS, MORE_ROWS = 2500, 900
SECTION = 16  # heads whose blocks of rows the bundled kernels take turn by turn, at most
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
    square = max(case.Nq, case.Nk)
    tried = (
        case,
        replace(case, Nq=case.Nk, Nk=case.Nq),
        replace(case, Nq=square, Nk=square),
        replace(case, Hkv=case.Hq),
        replace(case, Nq=square, Nk=square, Hkv=case.Hq),
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
        more = (*more, *DATA_CASES)
    if subject.recipe.keep != Num(True):
        more = (*more, *under_mask_cases(tiles_of(subject.module)))
    return legal_cases(subject, constants_of(subject), more)


def unforeseen(module: Module, deck: Sequence[Case]) -> tuple[Case, ...]:
    """Sizes that follow from the module's own text, so that no edit can be made for them: among
    those of the deck and beyond its largest, in keys, in rows, in batches and in heads; and more
    heads than are taken turn by turn (`SECTION`), with several blocks of rows each, of which some
    keep nothing."""
    digest = hashlib.sha256(print_module(module).encode()).digest()
    numbers = [int.from_bytes(digest[k : k + 2]) for k in range(0, 32, 2)]
    group, kv = ((2, 1), (1, 2), (3, 1), (2, 2))[numbers[0] % 4]
    keys = max((c.Nk for c in deck), default=0) + 1 + numbers[1] % MORE_KEYS
    rows = max((c.Nq for c in deck), default=0) + 1 + numbers[2] % MORE_ROWS
    exact = ("exact",)
    block = (tiles_of(module) or Tiles(128, 64)).rows
    heads, square = SECTION + 1 + numbers[12] % 7, block + 1 + numbers[15] % 60
    few = 9 + numbers[14] % 60  # keys: where the last query sees the last, two blocks keep none
    return (
        Case(1 + numbers[3] % 2, group * kv, kv, 9 + numbers[4] % 150, 9 + numbers[5] % 150,
             modes=exact),
        Case(1, 1, 1, 9 + numbers[6] % 40, keys, modes=exact),
        Case(1, 1, 1, rows, 9 + numbers[7] % 40, modes=exact),
        Case(3 + numbers[8] % 5, 1, 1, 2 + numbers[9] % 8, 9 + numbers[10] % 60, modes=exact),
        Case(1, 5 + numbers[11] % 20, 1, 2 + numbers[9] % 8, 9 + numbers[10] % 60, modes=exact),
        Case(1, heads, 1, 2 * block + few + numbers[13] % 40, few, modes=exact),
        Case(1, heads, 1, square, square, modes=exact),
    )  # fmt: skip


def drawn_cases(tiles: Tiles | None) -> tuple[Case, ...]:
    """Longer draws of ids and flags, padding at the end first: a third of these rows, with a whole
    tile of keys and a block of rows behind it in that third."""
    at = tiles or Tiles(128, 64)
    n = 3 * at.keys * (1 + -(-at.rows // at.keys))
    return tuple(Case(1, 1, 1, n, n, modes=("exact",), turn=turn) for turn in (4, 3, 2))


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
