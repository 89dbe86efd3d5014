"""The host's ops; `part` is the host."""

from __future__ import annotations

from typing import Any

from engine.cuir.execute.state.values import Gmem, TensorField, TensorMap
from engine.cuir.types import DType, GmemType, KernelRef, MapType


def tensor_map(
    part: Any, out: MapType, dtype: DType, field: TensorField, dims: list[int], box: list[int],
    swizzle: int,
) -> TensorMap:  # fmt: skip
    if len(dims) != field.data.dim():
        raise part.program.stop(
            "out_of_bounds", part.path,
            f"a map of rank {len(dims)} over {field.name}, which has rank {field.data.dim()}", part,
        )  # fmt: skip
    view = Gmem(GmemType(field.name, dtype.name, len(dims)), field, tuple(dims), part.program.mode)
    return TensorMap(out, view, (box[0], box[1]))


def run(
    part: Any, out: Any, kernel: KernelRef, args: list[Any], grid: list[int], threads: int,
    shared: int,
) -> int:  # fmt: skip
    part.launch(kernel, args, tuple(grid), threads, shared)
    return 0


def shared_limit(part: Any, out: Any) -> int:
    return int(part.program.arch.shared_block)


def sm_count(part: Any, out: Any) -> int:
    return int(part.program.limits.sm_count)
