"""Counts, ranges and lists: what every warp finds out for itself, so every part gives the same."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import numpy as np
import torch

from engine.cuir.execute.families.run_registers import free, rows_of
from engine.cuir.execute.state.global_memory import fits_i32, fold_word, touch_tile
from engine.cuir.execute.state.global_memory import put as put_rows
from engine.cuir.execute.state.values import Gmem, GmemTile, LambdaValue, RegTile, Tensor
from engine.cuir.types import Layout, TileType

WORDS = 4  # of bits for each row
AT_ONCE = 64  # rows of a mask that are asked for in one go, where bits take a few each
Found = TypeVar("Found")


def class_of(part: Any, out: Any, rows: int, cols: int, f: LambdaValue, at: list[int]) -> int:
    kept = _holds(part, rows, cols, f, at)
    return 2 if bool(kept.all()) else 1 if bool(kept.any()) else 0


def _holds(part: Any, rows: int, cols: int, f: LambdaValue, at: list[int]) -> Tensor:
    arange, above = part.program.arange, at[0] % AT_ONCE
    first, count = at[0], rows
    if above + rows <= AT_ONCE and _same_for_all(f) is not None:
        first, count = at[0] - above, AT_ONCE

    def found() -> Tensor:
        kept = torch.as_tensor(f(arange(first, count)[:, None], arange(at[1], cols)[None, :]))
        return kept.broadcast_to(count, cols)

    held = _once(part, f, (first, count, cols, at[1]), found)
    return held[at[0] - first : at[0] - first + rows]


def put_bits(
    part: Any, out: Any, rows: int, cols: int, dst: GmemTile, ends: GmemTile, f: LambdaValue,
    at: list[int],
) -> None:  # fmt: skip
    kept = _holds(part, rows, cols, f, at)

    def found() -> tuple[Tensor, list[int]]:
        held = kept.to(torch.bool).to(torch.float64)
        words = (held @ _places(cols)[2]).flatten().to(torch.int64)
        return words, np.flatnonzero(held.sum(0).numpy()).tolist()

    words, columns = _once(part, f, ("bits", rows, cols, *at), found)
    _write(part, dst, words)
    if columns:
        fold_word(part, ends, 0, min, at[1] + columns[0])
        fold_word(part, ends, 1, max, at[1] + columns[-1] + 1)


def load_bits(part: Any, out: TileType, layout: Layout, src: GmemTile) -> RegTile:
    first, count = rows_of(part, out.layout)
    begin = src.row + WORDS * first
    source, start, stop = touch_tile(part, src, begin, WORDS * count)
    words = torch.zeros(WORDS * count, dtype=torch.int64)
    words[start - begin : stop - begin] = source[start:stop]
    word, bit, _ = _places(out.layout.cols)
    held = words.view(count, WORDS).gather(1, word.expand(count, -1)) & bit
    return RegTile(out, held != 0, part.step)


def keep_bits(part: Any, out: TileType, tile: RegTile, bits: RegTile) -> RegTile:
    kept = torch.where(free(part, bits), free(part, tile), float("-inf"))
    return RegTile(out, kept, part.step)


@cache
def _places(cols: int) -> tuple[Tensor, Tensor, Tensor]:
    """The word of its row's four that a column's bit is in, and the bit: the columns of word w are
    those that lane w of a quad holds in an accumulator. Then what each column adds to each word,
    cols x 4: words are signed, so the last bit counts below zero. Float64 holds all of these
    exactly, and has a fast product."""
    c = torch.arange(cols)
    word, place = c // 2 % WORDS, c // 8 * 2 + c % 2
    bit = torch.ones_like(c) << place
    weights = torch.zeros(cols, WORDS, dtype=torch.float64)
    weights[c, word] = torch.where(place == 31, -bit, bit).to(torch.float64)
    return word, bit, weights


def least(part: Any, out: Any, count: int, f: LambdaValue, at: list[int]) -> int:
    return int(_values(part, count, f, at).min())


def greatest(part: Any, out: Any, count: int, f: LambdaValue, at: list[int]) -> int:
    return int(_values(part, count, f, at).max())


def _values(part: Any, count: int, f: LambdaValue, at: list[int]) -> Tensor:
    def found() -> Tensor:
        return torch.as_tensor(f(part.program.arange(at[0], count))).to(torch.int64)

    return _once(part, f, (count, *at), found)


def _once(
    part: Any, f: LambdaValue, where: tuple[int | str, ...], found: Callable[[], Found]
) -> Found:
    """What a lambda gives, computed by the first part that asks where all must get the same:
    the same lambda of the same numbers, which reads nothing that the program writes."""
    key = _same_for_all(f)
    if key is None:
        return found()
    kept: dict[Any, Found] = part.program.found
    out = kept.get((key, where))
    if out is None:
        out = kept[key, where] = found()
    return out


def _same_for_all(f: LambdaValue) -> tuple[Any, ...] | None:
    """The lambda, and what it takes from around it; None where that alone does not say what it
    gives."""
    if f.reads is None:
        return None
    values = [f.env.get(name) for name in f.reads]
    for value in values:
        if type(value) is Gmem:
            if value.field.written or not value.inside:
                return None
        elif type(value) is not int:
            return None
    return (f.fn, *values)


def put(part: Any, out: Any, dst: GmemTile, value: int) -> None:
    fits_i32(part, "put stores", value)
    _write(part, dst, torch.tensor([value]))


def compact(
    part: Any, out: Any, dst: GmemTile, count: int, f: LambdaValue, at: list[int]
) -> int:  # fmt: skip
    values = [v for step in range(count) if (v := int(f(at[0] + step))) >= 0]
    for value in values:
        fits_i32(part, "compact stores", value)
    _write(part, dst, torch.tensor(values, dtype=torch.int64))
    return len(values)


def _write(part: Any, dst: GmemTile, values: Tensor) -> None:
    """The values to the vector from its first element on; what lies outside is dropped."""
    target, start, stop = touch_tile(part, dst, dst.row, len(values), write=True)
    if stop > start:
        data = values[start - dst.row : stop - dst.row]
        put_rows(part, dst.view, dst.index, target[start:stop], data, slice(start, stop))
