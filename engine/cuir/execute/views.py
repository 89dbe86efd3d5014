"""Ids and views."""

from __future__ import annotations

from typing import Any

from engine.cuir.execute.values import BarrierArray, Gmem, Shared, TensorField, WordArray
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
    end = start + out.bytes
    size = part.machine.shared.size
    if end > size:
        raise part.program.stop(
            "out_of_bounds", part.path,
            f"ends at byte {end} of shared memory, and the launch asks for {size}", part,
        )  # fmt: skip
    return Shared(out, start)


def transpose(part: Any, out: SharedType, tile: Shared) -> Shared:
    return Shared(out, tile.offset)


def columns(part: Any, out: SharedType, count: int, tile: Shared) -> Shared:
    return Shared(out, tile.offset)


def shared_words(part: Any, out: WordsType, count: int, offset: int) -> WordArray:
    size = part.machine.shared.size
    if offset < 0 or offset + out.bytes > size:
        raise part.program.stop(
            "out_of_bounds", part.path,
            f"words end at byte {offset + out.bytes} of shared memory, and the launch asks for "
            f"{size}", part,
        )  # fmt: skip
    return WordArray(out, offset)


def mbarriers(part: Any, out: BarriersType, count: int, offset: int) -> BarrierArray:
    size = part.machine.shared.size
    if offset < 0 or offset + 8 * count > size:
        raise part.program.stop(
            "out_of_bounds", part.path,
            f"barriers end at byte {offset + 8 * count} of shared memory, and the launch asks for "
            f"{size}", part,
        )  # fmt: skip
    return BarrierArray(out, offset)
