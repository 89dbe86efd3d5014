"""Counts, ranges and lists: what every warp finds out for itself, so every part gives the same."""

from __future__ import annotations

from typing import Any

import torch

from engine.cuir.execute.movement import put as put_rows
from engine.cuir.execute.movement import touch_tile
from engine.cuir.execute.values import GmemTile, LambdaValue, Tensor


def count_kept(part: Any, out: Any, rows: int, cols: int, f: LambdaValue, at: list[int]) -> int:
    arange = part.program.arange
    kept = torch.as_tensor(f(arange(at[0], rows)[:, None], arange(at[1], cols)[None, :]))
    return int(kept.broadcast_to(rows, cols).sum())


def least(part: Any, out: Any, count: int, f: LambdaValue, at: list[int]) -> int:
    return int(_values(part, count, f, at).min())


def greatest(part: Any, out: Any, count: int, f: LambdaValue, at: list[int]) -> int:
    return int(_values(part, count, f, at).max())


def _values(part: Any, count: int, f: LambdaValue, at: list[int]) -> Tensor:
    return torch.as_tensor(f(part.program.arange(at[0], count))).to(torch.int64)


def put(part: Any, out: Any, dst: GmemTile, value: int) -> None:
    _write(part, dst, [value])


def compact(
    part: Any, out: Any, dst: GmemTile, count: int, f: LambdaValue, at: list[int]
) -> int:  # fmt: skip
    values = [v for step in range(count) if (v := int(f(at[0] + step))) >= 0]
    _write(part, dst, values)
    return len(values)


def _write(part: Any, dst: GmemTile, values: list[int]) -> None:
    """The values to the vector from its first element on; what lies outside is dropped."""
    target, start, stop = touch_tile(part, dst, dst.row, len(values), write=True)
    if stop > start:
        data = torch.tensor(values[start - dst.row : stop - dst.row], dtype=target.dtype)
        put_rows(part, dst.view, dst.index, target[start:stop], data, slice(start, stop))
