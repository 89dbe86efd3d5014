"""Register tiles: each part holds and works on its own rows."""

from __future__ import annotations

from typing import Any

import torch

from engine.cuir.execute.state.global_memory import touch_tile
from engine.cuir.execute.state.values import GmemTile, LambdaValue, RegTile, Tensor
from engine.cuir.scalar import round_to
from engine.cuir.types import DType, Layout, TileType


def rows_of(part: Any, layout: Layout) -> tuple[int, int]:
    """First row and number of rows that this part holds."""
    if layout.role == "col":
        return 0, 1
    count = layout.rows // part.parts
    return part.local * count, count


def _shape(part: Any, layout: Layout) -> tuple[int, int]:
    return rows_of(part, layout)[1], layout.cols


def free(part: Any, tile: RegTile, *, write: bool = False) -> Tensor:
    """The tile's data for the threads; touching it while a matmul holds it is a finding."""
    if tile.pending > part.mma_done or (write and tile.held > part.mma_done):
        part.program.report(
            "missing_group_wait", part.path,
            "touches registers that an asynchronous matmul still holds; mma_wait comes first",
            part.index,
        )  # fmt: skip
    return tile.data


def zeros(part: Any, out: TileType, layout: Layout) -> RegTile:
    data = torch.zeros(_shape(part, layout), dtype=part.program.float)
    return RegTile(out, data, part.step)


def fill(part: Any, out: TileType, layout: Layout, value: float) -> RegTile:
    data = torch.full(_shape(part, layout), float(value), dtype=part.program.float)
    return RegTile(out, data, part.step)


def _at(part: Any, layout: Layout, at: list[int]) -> list[Tensor]:
    """Global coordinates of the part's elements: i as rows x 1, j as 1 x cols."""
    first, count = rows_of(part, layout)
    arange = part.program.arange
    if layout.role == "col":
        return [arange(at[1], layout.cols)[None, :]]
    i = arange(at[0] + first, count)[:, None]
    if layout.role == "row":
        return [i]
    return [i, arange(at[1], layout.cols)[None, :]]


def map_tiles(
    part: Any, out: TileType, tiles: list[RegTile], f: LambdaValue, at: list[int] | None
) -> RegTile:
    values = [free(part, t) for t in tiles]
    shape = values[0].shape
    if at is not None:
        values += _at(part, tiles[0].type.layout, at)
    data = f(*values)
    if not isinstance(data, torch.Tensor):
        data = torch.full(shape, float(data), dtype=part.program.float)
    elif data.shape != shape:
        data = data.expand(shape)
    if data.dtype != part.program.float:
        data = data.to(part.program.float)
    return RegTile(out, data, part.step)


def keep(part: Any, out: TileType, tiles: list[RegTile], f: LambdaValue, at: list[int]) -> RegTile:
    data, *more = [free(part, t) for t in tiles]
    kept = f(*more, *_at(part, tiles[0].type.layout, at))
    # A whole number is true where it is not 0, as in C++: memory holds such for booleans.
    data = torch.where(torch.as_tensor(kept).to(torch.bool), data, float("-inf"))
    return RegTile(out, data, part.step)


def row_max(part: Any, out: TileType, tile: RegTile, old: RegTile) -> RegTile:
    # fmax, as the hardware's max: a NaN score does not hide the others.
    data, before = free(part, tile), free(part, old)
    most = data.amax(dim=1, keepdim=True)
    if torch.isnan(most).any():
        most = torch.where(data.isnan(), float("-inf"), data).amax(dim=1, keepdim=True)
    return RegTile(out, torch.fmax(before, most), part.step)


def row_sum(part: Any, out: TileType, tile: RegTile, old: RegTile) -> RegTile:
    total = free(part, tile).sum(dim=1, keepdim=True)
    return RegTile(out, free(part, old) + total, part.step)


def row_reduce(part: Any, out: TileType, row: RegTile) -> RegTile:
    return RegTile(out, free(part, row), part.step)


def convert(part: Any, out: TileType, tile: RegTile, dtype: DType, layout: Any) -> RegTile:
    data = round_to(free(part, tile), dtype.name, part.program.mode)
    return RegTile(out, data, part.step)


def load_rows(part: Any, out: TileType, layout: Layout, tile: GmemTile) -> RegTile:
    first, count = rows_of(part, out.layout)
    return _loaded(part, out, _vector(part, tile, tile.row + first, count)[:, None])


def load_cols(part: Any, out: TileType, layout: Layout, tile: GmemTile) -> RegTile:
    # Columns before the first are as absent as those past the last.
    there = GmemTile(tile.view, tile.index, max(tile.row, 0))
    return _loaded(part, out, _vector(part, there, tile.row, out.layout.cols)[None, :])


def load_tile(part: Any, out: TileType, layout: Layout, tile: GmemTile, column: int) -> RegTile:
    first, count = rows_of(part, out.layout)
    source, start, stop = touch_tile(part, tile, tile.row + first, count)
    cols = out.layout.cols
    data = torch.zeros(count, cols, dtype=source.dtype)
    left, right = max(column, 0), min(column + cols, source.shape[-1])
    if stop > start and right > left:
        row = tile.row + first
        data[start - row : stop - row, left - column : right - column] = source[
            start:stop, left:right
        ]
    return _loaded(part, out, data)


def load_output(part: Any, out: TileType, layout: Layout, tile: GmemTile) -> RegTile:
    return load_tile(part, out, layout, tile, 0)


def load_lines(part: Any, out: TileType, layout: Layout, tile: GmemTile, turn: int) -> RegTile:
    if turn < 0:
        raise part.program.stop("bad_value", part.path, f"turns rows by {turn} columns", part)
    first, count = rows_of(part, out.layout)
    source, start, stop = touch_tile(part, tile, tile.row + first, count)
    columns = (torch.arange(out.layout.cols) + turn) % max(source.shape[-1], 1)
    data = torch.zeros(count, out.layout.cols, dtype=source.dtype)
    if stop > start:
        row = tile.row + first
        data[start - row : stop - row] = source[start:stop].index_select(1, columns)
    return _loaded(part, out, data)


def swap_neighbours(part: Any, out: TileType, tile: RegTile) -> RegTile:
    data = free(part, tile)
    swapped = data.reshape(data.shape[0], -1, 2).flip(-1).reshape(data.shape)
    return RegTile(out, swapped, part.step)


def _loaded(part: Any, out: TileType, data: Tensor) -> RegTile:
    """Memory holds whole numbers for booleans; registers hold what a choice takes as it is."""
    return RegTile(out, data != 0 if out.dtype == "bool" else data, part.step)


def _vector(part: Any, tile: GmemTile, first: int, count: int) -> Tensor:
    source, start, stop = touch_tile(part, tile, first, count)
    data = torch.zeros(count, dtype=source.dtype)
    if stop > start:
        data[start - first : stop - first] = source[start:stop]
    return data
