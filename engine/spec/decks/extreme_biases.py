"""Biases at the ends of their type: how padding is written where no -inf is wanted.

A score that holds the smallest number of a type lies beyond what a factor such as log2(e) leaves of
float32. Each pattern is one case of a deck, because PyTorch's own error differs by pattern: at -1e9
float32 has no digits left for the rest of a score, and that must excuse no other row. A float mask
of ones and zeros, which a score multiplies by such a number, is drawn as that: it must leave the
scores of its ones their digits.

The GPU worker uses it too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from engine.cuir.nodes import Binary, Expr, Index, Name, Num, walk_expr
from engine.spec.expressions.cancelling_multiples import LARGE
from engine.spec.recipes.recipe import Input, Recipe

if TYPE_CHECKING:
    import torch
    from torch import Tensor

FIRST = 128  # keys of a left padding: whole tiles of most kernels
FLOATS = ("T", "f32")

Pattern = Callable[["Tensor", float], None]


def _first_least(bias: Tensor, least: float) -> None:
    bias[..., : min(FIRST, bias.shape[-1] - 1)] = least


def _all_least(bias: Tensor, least: float) -> None:
    bias.fill_(least)


def _removed_or_least(bias: Tensor, least: float) -> None:
    bias[..., ::2], bias[..., 1::2] = least, -math.inf
    bias[..., 1 : bias.shape[-1] // 2 : 2] = least


def _deep(bias: Tensor, least: float) -> None:
    bias.fill_(max(-1e30, least))


def _some_deep(bias: Tensor, least: float) -> None:
    bias[..., ::3] = max(-1e30, least)
    bias[..., 1::3] = max(-1e9, least)


def _ten_to_the_nine(bias: Tensor, least: float) -> None:
    bias.fill_(max(-1e9, least))


def _high(bias: Tensor, least: float) -> None:
    bias[..., 1::2] = min(1e30, -least)


def _greatest(bias: Tensor, least: float) -> None:
    bias[..., bias.shape[-1] // 2 :] = -least


PATTERNS: Mapping[str, Pattern] = {
    "first keys least": _first_least,
    "all keys least": _all_least,
    "least and -inf": _removed_or_least,
    "all keys -1e30": _deep,
    "-1e30 and -1e9": _some_deep,
    "all keys -1e9": _ten_to_the_nine,
    "1e30": _high,
    "greatest": _greatest,
}
"""By the name of a case's values; `least` is the type's smallest number, and where a type has no
-1e30 or -1e9 that stands for it."""


def biases(recipe: Recipe) -> tuple[Input, ...]:
    """Float inputs that a softmax's score adds as they are, or times a positive number: any number
    of their type may stand there."""
    if recipe.weight is not None:
        return ()
    added = {load.base for load in _added(recipe.score)}
    return tuple(
        i for i in recipe.extra()
        if i.derive is None and i.dtype in FLOATS and Name(i.name) in added
    )  # fmt: skip


def adds_several(recipe: Recipe) -> bool:
    """Whether a score adds several numbers, so that what is left of it hangs on their order."""
    return len(_added(recipe.score)) > 1


def _added(expr: Expr) -> list[Index]:
    match expr:
        case Index():
            return [expr]
        case Binary("+", left, right):
            return [*_added(left), *_added(right)]
        case Binary("-", left, _):
            return _added(left)
        case Binary("*", inner, Num(value)) | Binary("*", Num(value), inner) if 0 < value < LARGE:
            return _added(inner)
    return []


def masks_as_floats(recipe: Recipe) -> frozenset[str]:
    """Float inputs of ones and zeros: a score adds a large multiple of what they leave of 1."""
    return frozenset(
        load.base.id
        for term in walk_expr(recipe.score)
        if isinstance(term, Binary) and term.op == "*"
        and isinstance(term.right, Num) and abs(term.right.value) >= LARGE
        for load in walk_expr(term.left)
        if isinstance(load, Index) and isinstance(load.base, Name)
    )  # fmt: skip


def least_of(item: Input, element: torch.dtype) -> float:
    """The smallest number of an input's type; `element` is the kernel's own."""
    import torch

    return float(torch.finfo(torch.float32 if item.dtype == "f32" else element).min)


def at_extremes(
    recipe: Recipe, inputs: Mapping[str, Tensor], pattern: str, turn: int, element: torch.dtype
) -> dict[str, Tensor]:
    """The inputs with one bias as the pattern has it, by turns where there are several: two at the
    smallest number overflow in PyTorch too."""
    found = biases(recipe)
    if not found:
        return dict(inputs)
    item = found[turn % len(found)]
    bias = inputs[item.name].clone()
    if bias.numel():
        keys = item.dims.index("Nk") if "Nk" in item.dims else None
        # Without a key of its own one number stands for all keys of a row, a head or a batch.
        along = bias.movedim(keys, -1) if keys is not None else bias.unsqueeze(-1)
        PATTERNS[pattern](along, least_of(item, element))
    return {**inputs, item.name: bias}
