"""How integers over rows and flags are drawn: in the ways that models bring them, in turns.

Sorted numbers and independent flags alone hide what a kernel takes for granted: that a block's
least number is its first one, that no tile is all padding. A deck gives each of its cases another
turn, so that it has all of them without being longer. The batches of one case differ too.

Standard library and torch only: the GPU worker uses it too. Draws are made on the generator's
device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Draw = Callable[[Sequence[int], torch.Generator], Tensor]
OUTSIDE = -1  # the number of rows that belong to nothing: padding at the end
VALUES = 4  # different numbers where they are in no order


def in_turn(
    ways: Sequence[Draw],
    shape: Sequence[int],
    generator: torch.Generator,
    turn: int,
    batched: bool,
) -> Tensor:
    """`shape` in way `turn`; where the first dimension is the batch, each in the way after."""
    if not batched or len(shape) < 2 or not shape[0]:
        return ways[turn % len(ways)](shape, generator)
    parts = [ways[(turn + b) % len(ways)](shape[1:], generator) for b in range(shape[0])]
    return torch.stack(parts)


# --- integers over rows: documents, segments, classes ---------------------------------------------


def sorted_runs(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Sorted, in ragged runs along the last dimension, another draw per leading index."""
    if not shape:
        return torch.zeros((), dtype=torch.int64, device=generator.device)
    starts = _uniform(shape, generator) < min(0.5, 4.0 / max(shape[-1], 1))
    return starts.cumsum(-1)


def unsorted(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Few different numbers, each row by itself."""
    return torch.randint(0, VALUES, tuple(shape), generator=generator, device=generator.device)


def permuted_runs(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Runs in no order: a number may come back, and a later run may have a smaller one."""
    return sorted_runs(shape, generator) * 3 % (VALUES + 1)


def all_equal(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """One number."""
    return torch.full(tuple(shape), 2, dtype=torch.int64, device=generator.device)


def first_apart(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """One number, and another one for the first rows, as many as there are beyond a multiple of
    eight: the first block of rows has partial tiles where the next one has whole ones, and where
    the keys are such a multiple, from the first one to the last."""
    if not shape:
        return all_equal(shape, generator)
    place = torch.arange(shape[-1], device=generator.device)
    return (place < shape[-1] % 8).long().expand(tuple(shape)).clone()


def last_apart(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """`first_apart` from the last row on: the first block of rows has the whole tiles."""
    out = first_apart(shape, generator)
    return out.flip(-1) if out.dim() else out


def with_tail(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Sorted runs, the last third belonging to nothing."""
    out = sorted_runs(shape, generator)
    if out.dim():
        out[..., shape[-1] - shape[-1] // 3 :] = OUTSIDE
    return out


ANY_IDS: tuple[Draw, ...] = (
    sorted_runs, unsorted, permuted_runs, all_equal, first_apart, last_apart,
)  # fmt: skip
IDS: tuple[Draw, ...] = (*ANY_IDS, with_tail)
"""`ANY_IDS` are all from 0 on, for what may also be an index."""


# --- flags: padding, blocks, dense masks ----------------------------------------------------------


def independent(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Each by itself, three of four true."""
    return _uniform(shape, generator) < 0.75


def prefix(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """True up to somewhere in the middle half, then false: right padding."""
    if not shape:
        return independent(shape, generator)
    share = 0.25 + 0.5 * _uniform((), generator)
    place = torch.arange(shape[-1], device=generator.device)
    return (place < share * shape[-1]).expand(tuple(shape)).clone()


def runs(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Long runs of true and false, the same for all leading indices: whole tiles of both."""
    if not shape:
        return independent(shape, generator)
    starts = _uniform(shape[-1:], generator) < min(0.5, 6.0 / max(shape[-1], 1))
    return (starts.cumsum(-1) % 2 == 0).expand(tuple(shape)).clone()


def all_true(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    return torch.ones(tuple(shape), dtype=torch.bool, device=generator.device)


def all_false(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    return torch.zeros(tuple(shape), dtype=torch.bool, device=generator.device)


FLAGS: tuple[Draw, ...] = (independent, prefix, runs, all_true, all_false)


def _uniform(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    return torch.rand(tuple(shape), generator=generator, device=generator.device)
