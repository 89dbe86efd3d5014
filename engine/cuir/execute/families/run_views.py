"""Ids and views."""

from __future__ import annotations

from typing import Any

from engine.cuir.execute.state.values import BarrierArray, Gmem, Shared, TensorField, WordArray
from engine.cuir.static.launch_limits import past_end
from engine.cuir.types import BarriersType, DType, GmemType, SharedType, WordsType


def block_id(part: Any, out: Any, axis: int) -> int:
    return int(part.machine.block[axis])


def grid_dim(part: Any, out: Any, axis: int) -> int:
    return int(part.program.grid[axis])


def warpgroup_id(part: Any, out: Any) -> int:
    return int(part.unit.index)


def elect(part: Any, out: Any) -> bool:
    return bool(part.local == 0)


def sizeof(part: Any, out: Any, dtype: DType) -> int:
    return dtype.size


def same_type(part: Any, out: Any, a: DType, b: DType) -> bool:
    return a == b


def gmem(part: Any, out: GmemType, dtype: DType, field: TensorField, dims: list[int]) -> Gmem:
    if len(dims) != field.data.dim():
        raise part.program.stop(
            "out_of_bounds", part.path,
            f"a view of rank {len(dims)} over {field.name}, whose rank is {field.data.dim()}", part,
        )  # fmt: skip
    if min(dims) < 0:
        raise part.program.stop("bad_value", part.path, f"a view of shape {dims}", part)
    return field.view(out, tuple(dims), part.program.mode)


def shared(part: Any, out: SharedType, dtype: DType, rows: int, cols: int, offset: int) -> Shared:
    return _shared(part, out)


def shared_stages(
    part: Any, out: SharedType, dtype: DType, stages: int, rows: int, cols: int, offset: int
) -> Shared:
    return _shared(part, out)


def _shared(part: Any, out: SharedType) -> Shared:
    start = out.offset or 0
    _inside(part, start, start + out.bytes)
    return Shared(out, start)


def _inside(part: Any, start: int, end: int) -> None:
    """Stops the run where bytes start..end are not all in the block's shared memory."""
    size, lost = part.machine.shared.size, part.machine.lost
    if start < 0 or end > size:
        words = f"starts at byte {start}" if start < 0 else past_end(end, size + lost, lost)
        raise part.program.stop("out_of_bounds", part.path, words, part)


def transpose(part: Any, out: SharedType, tile: Shared) -> Shared:
    return Shared(out, tile.offset)


def columns(part: Any, out: SharedType, count: int, tile: Shared) -> Shared:
    return Shared(out, tile.offset)


def shared_words(part: Any, out: WordsType, count: int, offset: int) -> WordArray:
    _inside(part, offset, offset + out.bytes)
    return WordArray(out, offset)


def mbarriers(part: Any, out: BarriersType, count: int, offset: int) -> BarrierArray:
    _inside(part, offset, offset + 8 * count)
    return BarrierArray(out, offset)
