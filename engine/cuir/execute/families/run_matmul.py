"""Matrix multiplications: operands of T, products and sums in the mode's float."""

from __future__ import annotations

from typing import Any

import torch

from engine.cuir.execute.families.run_movement import blocked
from engine.cuir.execute.families.run_registers import free, rows_of
from engine.cuir.execute.state.values import RegTile, Shared, Tensor


def _left(part: Any, a: RegTile | Shared, acc: RegTile, access: Any, through_async: bool) -> Tensor:
    if isinstance(a, RegTile):
        return free(part, a)
    memory = part.machine.shared
    first, count = rows_of(part, acc.type.layout)
    region = memory.region(a.type, a.offset, rows=(first, first + count))
    memory.read(region, access, a.type.dtype, through_async=through_async)
    tile: Tensor = memory.tile(a.type, a.offset)
    return tile[first : first + count]


def _right(part: Any, b: Shared, access: Any, through_async: bool) -> Tensor:
    memory = part.machine.shared
    memory.read(memory.region(b.type, b.offset), access, b.type.dtype, through_async=through_async)
    tile: Tensor = memory.tile(b.type, b.offset)
    return tile.T if b.type.transposed else tile


def gemm(part: Any, out: Any, acc: RegTile, a: RegTile | Shared, b: Shared) -> None:
    access = part.access()
    left, right = _left(part, a, acc, access, False), _right(part, b, access, False)
    acc.data = torch.addmm(free(part, acc, write=True), left, right)
    acc.born = part.step


def mma_fence(part: Any, out: Any) -> None:
    part.machine.collective(part)
    part.fenced_at = part.step


def gemm_async(part: Any, out: Any, acc: RegTile, a: RegTile | Shared, b: Shared) -> None:
    _start(part, acc, a, b, keep=True)


def gemm_async_init(part: Any, out: Any, acc: RegTile, a: RegTile | Shared, b: Shared) -> None:
    _start(part, acc, a, b, keep=False)


def _start(part: Any, acc: RegTile, a: RegTile | Shared, b: Shared, *, keep: bool) -> None:
    part.machine.collective(part)
    group = part.mma_committed + 1
    access = part.access(part.unit.agent, group)
    for tile in (acc, a):
        if isinstance(tile, RegTile) and tile.born > part.fenced_at:
            part.program.report(
                "missing_mma_fence", part.path,
                "takes registers that threads wrote since the last mma_fence", part.index,
            )  # fmt: skip
    if acc.held > part.mma_done:
        free(part, acc, write=True)
    left, right = _left(part, a, acc, access, True), _right(part, b, access, True)
    acc.data = torch.addmm(acc.data, left, right) if keep else left @ right
    acc.pending = group
    if isinstance(a, RegTile):
        a.held = group
    part.mma_open = True


def mma_commit(part: Any, out: Any) -> None:
    part.machine.collective(part)
    part.mma_committed += 1
    part.mma_open = False


def mma_wait(part: Any, out: Any, n: int) -> Any:
    part.machine.collective(part)
    through = part.mma_committed - n
    unit = part.unit

    def finish() -> None:
        part.mma_done = max(part.mma_done, through)
        part.clock[unit.agent] = max(int(part.clock[unit.agent]), through)

    return blocked(
        lambda: all(p.mma_committed >= through for p in unit.parts), finish,
        "waits for matmul groups that not all warps of its unit have started",
    )  # fmt: skip
