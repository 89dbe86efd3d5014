"""Tiles between global memory, shared memory and registers."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import torch

from engine.cuir.execute.compiled.code import Block
from engine.cuir.execute.families.run_registers import free, rows_of
from engine.cuir.execute.state.global_memory import put, touch_tile
from engine.cuir.execute.state.values import GmemTile, RegTile, Shared, Tensor
from engine.cuir.ops.movement import PANEL
from engine.cuir.scalar import round_to
from engine.cuir.types import Layout, SharedType, TileType


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


def share(part: Any) -> tuple[int, int]:
    """Which rows this part moves: its turn among the unit's parts; an elected thread moves all."""
    return (0, 1) if part.elected else (part.local, part.parts)


def copy_async(part: Any, out: Any, dst: Shared, src: GmemTile) -> None:
    first, step = share(part)
    _start_copy(part, dst, src, gmem_rows(part, src, dst.type, first, step))


def copy_async_rows(part: Any, out: Any, dst: Shared, src: GmemTile, begin: int, end: int) -> None:
    first, step = share(part)
    data = gmem_rows(part, src, dst.type, first, step)
    _start_copy(part, dst, src, rows_between(data, src.row + first, step, begin, end))


def rows_between(data: Tensor, first: int, step: int, begin: int, end: int) -> Tensor:
    """The tensor's rows `first`, `first + step`, ... made zeros where outside [begin, end)."""
    rows = range(first, first + step * data.shape[0], step)
    data[: bisect_left(rows, begin)] = 0.0
    data[bisect_left(rows, end) :] = 0.0
    return data


def _start_copy(part: Any, dst: Shared, src: GmemTile, data: Tensor) -> None:
    memory = part.machine.shared
    first, step = share(part)
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


def load_shared(part: Any, out: TileType, layout: Layout, tile: Shared, column: int) -> RegTile:
    first, count, columns = _own(part, layout, tile, column)
    memory = part.machine.shared
    region = memory.region(tile.type, tile.offset, rows=(first, first + count))
    memory.read(region, part.access(), tile.type.dtype, through_async=False)
    data = memory.tile(tile.type, tile.offset)[first : first + count, columns].clone()
    return RegTile(out, data, part.step)


def store_shared(part: Any, out: Any, dst: Shared, column: int, src: RegTile) -> None:
    first, count, columns = _own(part, src.type.layout, dst, column)
    memory = part.machine.shared
    data = round_to(free(part, src), dst.type.dtype, part.program.mode)
    region = memory.region(dst.type, dst.offset, rows=(first, first + count))
    memory.write(region, part.access(), dst.type.dtype, fenced=not part.machine.async_proxy)
    memory.tile(dst.type, dst.offset)[first : first + count, columns] = data


def _own(part: Any, layout: Layout, tile: Shared, column: int) -> tuple[int, int, slice]:
    """The first row of the part's own and their number, and the layout's columns of the tile."""
    end = column + layout.cols
    if column < 0 or column % PANEL or end > tile.type.cols:
        raise part.program.stop(
            "out_of_bounds", part.path,
            f"columns {column} to {end - 1} of a shared tile of {tile.type.cols}, which are taken "
            f"by {PANEL}", part,
        )  # fmt: skip
    return (*rows_of(part, layout), slice(column, end))


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
    first, count = rows_of(part, row.type.layout)
    data = free(part, row)[:, 0]
    target, start, stop = touch_tile(part, dst, dst.row + first, count, write=True)
    if stop > start:
        begin = start - dst.row - first
        put(part, dst.view, dst.index, target[start:stop], data[begin : begin + stop - start],
            slice(start, stop))  # fmt: skip


def blocked(ready: Any, finish: Any, what: str, about: Any = None) -> Block | Any:
    """The op's result if it can finish now, else what it waits for."""
    return finish() if ready() else Block(ready, finish, what, about)
