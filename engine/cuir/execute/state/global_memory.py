"""Global memory as the blocks of a launch meet it: bounds, and who wrote what.

Rows past a view's end are absent. An index outside it, an element that nothing has written, and a
row that another block of the same launch wrote are findings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from engine.cuir.execute.state.values import Gmem, GmemTile, Tensor
from engine.cuir.scalar import gather, round_to


def fits_i32(part: Any, does: str, value: int) -> None:
    """Raises `Stopped` for a number that a 32-bit word would not hold: CUDA stores another one."""
    if not -(1 << 31) <= value < 1 << 31:
        raise part.program.stop("bad_value", part.path, f"{does} {value}, which no i32 holds", part)


def touch_tile(
    part: Any, tile: GmemTile, first: int, count: int, *, write: bool = False
) -> tuple[Tensor, int, int]:
    """The matrix or vector that the tile is of, and which rows of [first, first + count) exist.

    Rows outside the view's shape are absent; a batch or head outside it, a row before it, or a view
    larger than its tensor is a finding.
    """
    view = tile.view
    program = part.program
    lead = view.shape[: len(tile.index)]
    rows = view.shape[len(tile.index)]
    if any(not 0 <= i < size for i, size in zip(tile.index, lead, strict=True)):
        program.report(
            "out_of_bounds", part.path,
            f"index {list(tile.index)} of {view.field.name}, whose shape is {list(view.shape)}",
            part.index,
        )  # fmt: skip
        return view.data.new_zeros(view.data.shape[len(tile.index) :]), first, first
    if tile.row < 0:
        program.report("out_of_bounds", part.path,
                       f"starts at row {tile.row} of {view.field.name}", part.index)  # fmt: skip
    start, stop = max(first, 0), min(first + count, rows)
    if not view.inside:
        real = view.data.shape
        if any(i >= s for i, s in zip(tile.index, real, strict=False)):
            program.report("out_of_bounds", part.path, f"the view of {view.field.name} is larger "
                           f"than its tensor ({list(real)})", part.index)  # fmt: skip
            return view.data.new_zeros(view.data.shape[len(tile.index) :]), first, first
        if stop > real[len(tile.index)] or real[-1] < view.shape[-1]:
            program.report(
                "out_of_bounds", part.path,
                f"rows {start} to {stop} of {view.field.name}, whose tensor is {list(real)}",
                part.index,
            )  # fmt: skip
            stop = min(stop, real[len(tile.index)])
    data = view.data[tile.index] if tile.index else view.data
    if not write and view.field.unfilled:
        view.field.owners(len(tile.index) == len(view.shape) - 1)
    if not write and view.field.owner is not None and stop > start:
        owner = view.field.owner[tile.index] if tile.index else view.field.owner
        _one_block(part, view, owner[start:stop], "reads")
        _filled(part, part.path, view, owner[start:stop])
    return data, start, max(start, stop)


def _one_block(part: Any, view: Gmem, owner: np.ndarray, does: str) -> None:
    """Rows that another block of this launch wrote may be neither read nor written."""
    program = part.program
    clash = _of_others(program, owner)
    if _some(clash):
        other = int(owner[clash][0]) - program.launch_first - 1
        whose = (
            f"block {other} of this launch wrote"
            if other >= 0
            else "this launch changes by atomics"
        )
        program.report(
            "global_race", part.path, f"{does} rows of {view.field.name} that {whose}", part.index,
        )  # fmt: skip


def _of_others(program: Any, owner: Any) -> Any:
    """Where another block of this launch wrote, or all of it change a word by atomics."""
    written = owner > program.launch_first
    if _some(written):
        written &= owner != program.block
    return written | (owner == _claimed(program)) if program.shared_words else written


def _some(held: Any) -> bool:
    """Whether it holds anywhere; `any()` takes three times as long on a few rows."""
    return held if type(held) is bool else bool(np.count_nonzero(held))


def _claimed(program: Any) -> int:
    """The owner of the words that this launch changes by atomics: none of its blocks."""
    return -1 - int(program.launch_first)


def claimed_word(part: Any, tile: GmemTile) -> Tensor:
    """The word of global memory that a claim takes from, for this launch alone: at its end the word
    is what the launch found.

    Raises `Stopped` where the tensor has none. What nothing has written, and what this launch
    writes, is a finding.
    """
    word, index = _shared_word(part, tile, 0, "claims from")
    part.program.claims.setdefault(
        (tile.view.field.name, index), (word, int(word), part.path)
    )  # fmt: skip
    return word


def fold_word(
    part: Any, tile: GmemTile, place: int, fold: Callable[[int, int], int], value: int
) -> None:
    """`fold` of a word and `value` to the word, in one step: many blocks may, in any order.

    Raises and reports as `claimed_word` does.
    """
    word, _ = _shared_word(part, tile, place, "changes")
    word.fill_(fold(int(word), value))


def _shared_word(
    part: Any, tile: GmemTile, place: int, does: str
) -> tuple[Tensor, tuple[int, ...]]:
    """A word that all blocks of this launch change by atomics alone, and its index."""
    program, field = part.program, tile.view.field
    target, start, stop = touch_tile(part, tile, tile.row + place, 1, write=True)
    if stop <= start:
        raise program.stop(
            "out_of_bounds", part.path, f"{does} word {tile.row + place} of {field.name}, whose "
            f"shape is {list(tile.view.shape)}", part,
        )  # fmt: skip
    index = (*tile.index, start)
    owners = field.owners(True)
    _filled(part, part.path, tile.view, owners[index])
    if owners[index] > program.launch_first:
        program.report(
            "global_race", part.path,
            f"{does} a word of {field.name} that this launch writes", part.index,
        )  # fmt: skip
    owners[index] = _claimed(program)
    program.shared_words = True
    return target[start], index


def check_claims(program: Any) -> None:
    """At the end of a launch: every word that it claimed from is what the launch found."""
    for (name, _), (word, before, path) in program.claims.items():
        if int(word) != before:
            program.report(
                "unreturned_claim", path,
                f"the launch leaves {int(word)} in a word of {name} that held {before}: the next "
                "one would begin there", -1,
            )  # fmt: skip
    program.claims = {}
    program.shared_words = False


def _filled(part: Any, path: int, view: Gmem, owner: Any) -> None:
    """What no block has written may not be read where nothing lay before."""
    if view.field.unfilled and _some(owner == 0):
        part.program.report(
            "unwritten_read", path, f"reads elements of {view.field.name} that nothing has written",
            part.index,
        )  # fmt: skip


def read_of_written(part: Any, path: int, view: Gmem, at: list[Any]) -> None:
    """An element load of a field that some block writes: written before, and not in this launch
    unless by this block."""
    program = part.program
    if view.field.unfilled:
        view.field.owners(True)
    owner = view.field.owner
    if owner is None:
        return
    place = view.single(at)
    if place is not None:
        found = owner.item(place[: owner.ndim])
        _filled(part, path, view, found)
    else:
        found = _gathered(owner, at)
        # What lies outside the shape reads as 0, whoever writes what is inside.
        _filled(part, path, view, _gathered((owner == 0).astype(np.int64), at) == 0)
    if _some(_of_others(program, found)):
        program.report(
            "global_race", path,
            f"reads elements of {view.field.name} that another block of this launch wrote or that "
            "it claims from",
            part.index,
        )  # fmt: skip


def _gathered(values: np.ndarray, at: list[Any]) -> np.ndarray:
    """The values of a row or an element at places, 0 outside."""
    return torch.as_tensor(gather(torch.from_numpy(values), at[: values.ndim], "exact")).numpy()


def put(
    part: Any, view: Gmem, index: tuple[int, ...], place: Tensor, data: Tensor, rows: slice
) -> None:
    """Writes rows of an output; two blocks of one launch on one row are a finding."""
    if place.numel() == 0:
        return
    program, field = part.program, view.field
    if field.written:
        owners = field.owners(len(index) == len(view.shape) - 1)
        owner = owners[index][rows] if index else owners[rows]
        _one_block(part, view, owner, "writes")
        owner[...] = program.block
    dtype = view.type.dtype
    if dtype in ("f16", "bf16"):
        data = round_to(data, dtype, program.mode)
    if program.clean_inputs and data.dtype.is_floating_point and data.isnan().any():
        program.report(
            "nan_output",
            part.path,
            f"writes NaN to {field.name} although no input holds one",
            part.index,
        )
    place.copy_(data)
