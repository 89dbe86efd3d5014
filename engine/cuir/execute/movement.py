"""Tiles between global memory, shared memory and registers."""

from __future__ import annotations

from typing import Any

import torch

from engine.cuir.execute.code import Block
from engine.cuir.execute.program import Visit
from engine.cuir.execute.values import Gmem, GmemTile, RegTile, Shared, Tensor
from engine.cuir.scalar import gather, round_to
from engine.cuir.types import SharedType

NOTHING = torch.zeros(0)


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


def _one_block(part: Any, view: Gmem, owner: Tensor, does: str) -> None:
    """Rows that another block of this launch wrote may be neither read nor written."""
    program = part.program
    clash = (owner > program.launch_first) & (owner != program.block)
    if clash.any():
        other = int(owner[clash][0]) - program.launch_first - 1
        program.report(
            "global_race", part.path,
            f"{does} rows of {view.field.name} that block {other} of this launch wrote", part.index,
        )  # fmt: skip


def _filled(part: Any, path: int, view: Gmem, owner: Tensor) -> None:
    """What no block has written may not be read where nothing lay before."""
    if view.field.unfilled and bool((owner == 0).any()):
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
    found = torch.as_tensor(gather(owner, at[: owner.dim()], "exact"))
    _filled(part, path, view, found)
    if bool(((found > program.launch_first) & (found != program.block)).any()):
        program.report(
            "global_race", path,
            f"reads elements of {view.field.name} that another block of this launch wrote",
            part.index,
        )  # fmt: skip


def gmem_rows(part: Any, tile: GmemTile, type: SharedType, first: int, step: int) -> Tensor:
    """Rows first, first + step, ... of the tile that fills a shared tile; absent rows are 0."""
    data, _, stop = touch_tile(part, tile, tile.row, type.rows)
    if data.dim() == 1:
        data = data[None, tile.row : tile.row + type.cols]
        out = torch.zeros((1, type.cols), dtype=part.program.float)
        out[:, : data.shape[1]] = data
        return out if first == 0 else out[:0]
    if data.shape[1] != type.cols:
        raise part.program.stop(
            "type_mismatch", part.path,
            f"{tile.view.field.name} has {data.shape[1]} columns and the shared tile {type.cols}",
            part,
        )  # fmt: skip
    wanted = -(-(type.rows - first) // step)
    out = torch.zeros((wanted, type.cols), dtype=part.program.float)
    low = tile.row + first
    skip = max(0, -(low // step)) if low < 0 else 0
    rows = data[low + skip * step : stop : step] if stop > low + skip * step else data[:0]
    out[skip : skip + rows.shape[0]] = rows
    return out


def visit(part: Any, view: Gmem, index: tuple[int, ...], row: int) -> None:
    program = part.program
    program.coverage.visits.add(
        Visit(program.paths[part.path], program.block, view.field.name, index, row)
    )


def share(part: Any) -> tuple[int, int]:
    """Which rows this part moves: its turn among the unit's parts; an elected thread moves all."""
    return (0, 1) if part.elected else (part.local, part.parts)


def copy_async(part: Any, out: Any, dst: Shared, src: GmemTile) -> None:
    memory = part.machine.shared
    first, step = share(part)
    data = gmem_rows(part, src, dst.type, first, step)
    visit(part, src.view, src.index, src.row)
    group = part.copy_committed + 1
    region = memory.region(dst.type, dst.offset, every=(first, step))
    memory.write(region, part.access(part.copy_agent, group), dst.type.dtype,
                 fenced=not part.machine.async_proxy)  # fmt: skip
    place = memory.tile(dst.type, dst.offset)[first::step]
    part.copies.append((group, lambda: place.copy_(data), part.path))


def commit_async(part: Any, out: Any) -> None:
    part.copy_committed += 1


def wait_async(part: Any, out: Any, n: int) -> None:
    landed = part.copy_committed - n
    for group, land, _ in part.copies:
        if group <= landed:
            land()
    part.copies = [c for c in part.copies if c[0] > landed]
    agent = part.copy_agent
    part.clock[agent] = max(int(part.clock[agent]), landed)


def store(part: Any, out: Any, dst: Shared | GmemTile, src: RegTile) -> None:
    from engine.cuir.execute.registers import free, rows_of

    first, count = rows_of(part, src.type.layout)
    data = free(part, src)
    if isinstance(dst, GmemTile):
        _store_out(part, dst, first, data)
        return
    memory = part.machine.shared
    if dst.type.dtype != "f32":
        data = round_to(data, dst.type.dtype, part.program.mode)
    region = memory.region(dst.type, dst.offset, rows=(first, first + count))
    memory.write(region, part.access(), dst.type.dtype, fenced=not part.machine.async_proxy)
    memory.tile(dst.type, dst.offset)[first : first + count] = data


def _store_out(part: Any, dst: GmemTile, first: int, data: Tensor) -> None:
    target, start, stop = touch_tile(part, dst, dst.row + first, data.shape[0], write=True)
    if target.shape[-1] > data.shape[1]:
        raise part.program.stop(
            "type_mismatch", part.path,
            f"{dst.view.field.name} has {target.shape[-1]} columns and the tile {data.shape[1]}",
            part,
        )  # fmt: skip
    data = data[:, : target.shape[-1]]
    if stop > start:
        begin = start - dst.row - first
        put(part, dst.view, dst.index, target[start:stop], data[begin : begin + stop - start],
            slice(start, stop))  # fmt: skip


def copy_out(part: Any, out: Any, dst: GmemTile, src: Shared) -> None:
    memory = part.machine.shared
    # Rows go out in an order that gives every part rows that another one stored.
    first, step = share(part)
    region = memory.region(src.type, src.offset, every=(first, step))
    memory.read(region, part.access(), src.type.dtype, through_async=False)
    data = memory.tile(src.type, src.offset)[first::step]
    target, start, stop = touch_tile(part, dst, dst.row, src.type.rows, write=True)
    if target.dim() == 2 and target.shape[1] != src.type.cols:
        raise part.program.stop(
            "type_mismatch", part.path,
            f"{dst.view.field.name} has {target.shape[1]} columns and the shared tile "
            f"{src.type.cols}", part,
        )  # fmt: skip
    low = dst.row + first
    if low < start:
        skip = -(-(start - low) // step)
        low += skip * step
        data = data[skip:]
    place = target[low:stop:step] if stop > low else target[:0]
    put(part, dst.view, dst.index, place, data[: place.shape[0]], slice(low, max(stop, low), step))


def store_rows(part: Any, out: Any, dst: GmemTile, row: RegTile) -> None:
    from engine.cuir.execute.registers import free, rows_of

    first, count = rows_of(part, row.type.layout)
    data = free(part, row)[:, 0]
    target, start, stop = touch_tile(part, dst, dst.row + first, count, write=True)
    if stop > start:
        begin = start - dst.row - first
        put(part, dst.view, dst.index, target[start:stop], data[begin : begin + stop - start],
            slice(start, stop))  # fmt: skip


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
        owner.fill_(program.block)
    dtype = view.type.dtype
    if dtype in ("f16", "bf16"):
        data = round_to(data, dtype, program.mode)
    if program.clean_inputs and data.isnan().any():
        program.report(
            "nan_output",
            part.path,
            f"writes NaN to {field.name} although no input holds one",
            part.index,
        )
    place.copy_(data)


def blocked(ready: Any, finish: Any, what: str, about: Any = None) -> Block | Any:
    """The op's result if it can finish now, else what it waits for."""
    return finish() if ready() else Block(ready, finish, what, about)
