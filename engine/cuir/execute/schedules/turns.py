"""In which order the blocks of a launch go on.

A block runs to its end before the next begins, unless it claims work: which block gets which piece
is decided where they claim, so there another one may go on. With seed 0 the blocks take turns, as
multiprocessors of one speed would; with another seed any of those that have begun goes on, or the
next one begins; where a part is starved the first block claims all that there is to claim.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from engine.cuir.execute.compiled.program import Program, Schedule

Place = tuple[int, int, int]


def take_turns(program: Program, block: Callable[[Place], Iterator[None]]) -> None:
    """Runs every block of the grid to its end; `block` begins one, which stops at its claims."""
    choice = random.Random(f"{program.schedule.seed}/{program.launch_first}")
    places = _places(*program.grid)
    begun: list[tuple[int, Iterator[None]]] = []  # those that stopped at a claim, oldest first
    last, place = program.launch_first, next(places, None)
    while begun or place is not None:
        pick = _pick(program.schedule, choice, len(begun), place is not None)
        if pick < len(begun):
            program.block, going = begun.pop(pick)
        else:
            assert place is not None
            program.block = last = last + 1
            going = block(place)
            place = next(places, None)
        if next(going, _DONE) is not _DONE:
            begun.append((program.block, going))
    program.block = last


def _pick(schedule: Schedule, choice: random.Random, begun: int, more: bool) -> int:
    """The place among those that have begun of the one to go on; past them: the next one begins."""
    if schedule.starve is not None:
        return 0
    if schedule.seed:
        return choice.randrange(begun + more)
    return begun if more else 0


_DONE = object()


def _places(across: int, down: int, deep: int) -> Iterator[Place]:
    """Every block's indices, axis 0 first."""
    for z in range(deep):
        for y in range(down):
            for x in range(across):
                yield x, y, z
