"""How many key tiles a target's schedule visits, and how many of them hold no kept pair.

A tile that is visited in vain costs its time and changes no output, so no comparison of outputs
sees it. Counted at the deck's large cases, for schedules that follow from indices (a list of tiles
follows from what the inputs hold there).

Runs in the torch child only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor

from engine.cuir.nodes import Call, Name, Num
from engine.cuir.static.host_constants import constants_of, scalars_of
from engine.errors import CuBridgeError
from engine.gates.analysis.tile_sizes import tiles_of
from engine.gates.deck import UNKNOWN, Case
from engine.gates.runs.case_run import make_case
from engine.gates.runs.deck_cases import bent
from engine.gates.runs.subject import Subject
from engine.spec.reference.oracle import expected
from engine.transfer.fill import fill_arguments
from engine.transfer.match import find_attention
from engine.transfer.workspace import launch_constants

LARGEST = 4  # cases that are looked at


@dataclass(frozen=True, slots=True)
class Visits:
    """Tiles over all batches, heads and blocks of rows of a case."""

    case: str
    visited: int
    in_vain: int

    def to_json(self) -> dict[str, Any]:
        return {"case": self.case, "visited": self.visited, "in_vain": self.in_vain}

    def words(self) -> str:
        """What a verdict says of it; nothing where every tile holds a kept pair."""
        if not self.in_vain:
            return ""
        some = "1 holds" if self.in_vain == 1 else f"{self.in_vain} hold"
        return f"visits {self.visited} tiles at {self.case}, of which {some} no kept pair"


def visits(subject: Subject, deck: Sequence[Case]) -> Visits | None:
    """The count at the large case in which most is visited in vain: one head may show nothing, and
    where nothing does, several heads of three blocks of rows are looked at besides.

    None where there is no mask, where the target makes lists, or where its schedule is none that
    runs by itself.
    """
    whole = [c for c in deck if c.Nq and c.Nk and "exact" in c.modes]
    if subject.unread or subject.binding.workspace or subject.recipe.keep == Num(True):
        return None
    largest = sorted(whole, key=lambda c: c.B * c.Hq * c.Nq * c.Nk, reverse=True)[:LARGEST]
    try:
        found = [_visits(subject, case) for case in largest]
        if not any(one.in_vain for one in found) and (heads := _of_heads(subject)) is not None:
            found.append(_visits(subject, heads))
    except (CuBridgeError, ArithmeticError, LookupError, TypeError, ValueError):
        return None
    return max(found, key=lambda v: v.in_vain, default=None)


def _of_heads(subject: Subject) -> Case | None:
    """Four heads, each of three blocks of rows: the third one's first tiles lie far behind it."""
    length = 3 * (tiles_of(subject.module) or UNKNOWN).rows - 3
    return bent(subject, Case(1, 4, 2, length, length, modes=("exact",)))


def _visits(subject: Subject, case: Case) -> Visits:
    inputs, sizes = make_case(subject, case, 0)
    rows, keys, tiles = _schedule(subject, inputs, sizes)
    held = _held(expected(subject.recipe, inputs).keep, rows, keys)
    visited = in_vain = 0
    for b, h, block in product(*(range(n) for n in held.shape[:3])):
        listed = tiles(b, h, block * rows)
        visited += len(listed)
        in_vain += sum(not held[b, h, block, n] for n in listed)
    return Visits(str(case), visited, in_vain)


def _held(keep: Tensor, rows: int, keys: int) -> Tensor:
    """[B, Hq, blocks of rows, tiles]: whether a tile holds a kept pair."""
    b, h, nq, nk = keep.shape
    padded = torch.nn.functional.pad(keep, (0, -nk % keys, 0, -nq % rows))
    return padded.view(b, h, -(-nq // rows), rows, -(-nk // keys), keys).any(-1).any(3)


def _schedule(
    subject: Subject, inputs: dict[str, Any], sizes: dict[str, int]
) -> tuple[int, int, Callable[[int, int, int], list[int]]]:
    """Rows of a block, keys of a tile, and the tiles that (b, h, q0) visits."""
    module, names = subject.module, find_attention(subject.module).schedule
    functions, consts, scalars = module.devices, constants_of(module), scalars_of(module)

    def compiled(name: str, given: tuple[str, ...]) -> Callable[..., Any]:
        operands = tuple(Name(n) for n in ("args", "b", "h", "q0", *given))
        bound = tuple(Name(c) for c in functions[name].consts)
        return scalars.compile(Call(name, operands, (), bound))

    known = {**launch_constants(module, subject.binding), **sizes}
    filled = fill_arguments(subject.binding, inputs, known, torch.float64, torch.float64, 0)
    arguments = {
        name: _loads(value) if isinstance(value, Tensor) else value
        for name, value in filled.fields.items()
    }
    count, index = compiled(names.count, ()), compiled(names.index, ("step",))

    def tiles(b: int, h: int, q0: int) -> list[int]:
        env = {"args": arguments, "b": b, "h": h, "q0": q0}
        return [int(index(env | {"step": step})) for step in range(int(count(env)))]

    rows, keys = (int(consts[c]) for c in functions[names.count].consts[:2])
    return rows, keys, tiles


def _loads(tensor: Tensor) -> Callable[..., int | float | bool]:
    """A tensor as a function of indices, 0 outside."""

    def load(*index: int) -> int | float | bool:
        inside = all(0 <= i < n for i, n in zip(index, tensor.shape, strict=True))
        return tensor[index].item() if inside else 0

    return load
