"""What can be known of a spec without a recipe: the values its integers may have, what its text
names, and how to draw inputs of which nobody can say what they mean."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from engine.spec.python.program import large_integers
from engine.spec.python.signature import Signature
from engine.spec.python.spec_file import SpecSource

Sizes = Mapping[str, int]
Draw = Callable[[Tensor, Sizes, torch.Generator], Tensor]


def integers_of(source: SpecSource) -> tuple[int, ...]:
    """The integers of the spec's file and options: any of them may be a window or a block."""
    return tuple(sorted(large_integers(source)))


def saturates(source: SpecSource) -> bool:
    """Whether the text names tanh or sigmoid, which a GPU has as an approximation of 2^-11."""
    return any(
        getattr(node, "attr", getattr(node, "id", "")) in ("tanh", "sigmoid")
        for node in ast.walk(source.tree)
    )


def lengths(like: Tensor, sizes: Sizes, generator: torch.Generator) -> Tensor:
    """From none to one past all keys; never 0 for a single one, which may be a divisor."""
    low, high = (0 if like.dim() else 1), sizes["Nk"] + 2
    return torch.randint(low, high, like.shape, generator=generator).to(like.dtype)


def places(like: Tensor, sizes: Sizes, generator: torch.Generator) -> Tensor:
    """Any query or key, as an index has it."""
    most = max(min(sizes["Nq"], sizes["Nk"]), 1)
    return torch.randint(0, most, like.shape, generator=generator).to(like.dtype)


def documents(like: Tensor, sizes: Sizes, generator: torch.Generator) -> Tensor:
    """Few different numbers: documents, segments, classes. The seed says how: sorted
    runs, runs in no order, one number, no runs. Never below 0, for any of them may be an index."""
    values = torch.randint(0, 3, like.shape, generator=generator)
    if not like.dim():
        return values.to(like.dtype)
    match generator.initial_seed() // len(DRAWS) % 4:
        case 0:
            values = values.sort(-1).values
        case 1:
            values = (values.sort(-1).values + 1) % 3
        case 2:
            values = values[..., :1].expand(like.shape)
    return values.to(like.dtype)


DRAWS: Sequence[Draw] = (lengths, documents, places)


def integers_redrawn(
    signature: Signature,
    inputs: Mapping[str, Tensor],
    sizes: Sizes,
    seed: int,
    runs: Callable[[Mapping[str, Tensor]], bool],
    draws: Sequence[Draw] = DRAWS,
) -> dict[str, Tensor]:
    """The inputs with their integers drawn again, in the first of the ways that the spec runs with;
    which way is tried first changes with the seed. What an integer means is unknown here: a length,
    a place, the number of a document."""
    unknown = [i for i in signature.inputs if i.role == "extra" and i.dtype in ("i32", "i64")]
    if not unknown or not (sizes["Nq"] and sizes["Nk"]):
        return dict(inputs)
    for attempt in range(len(draws)):
        generator = torch.Generator().manual_seed(seed)
        draw = draws[(seed + attempt) % len(draws)]
        tried = dict(inputs)
        for item in unknown:
            old = inputs[item.name]
            tried[item.name] = draw(old.cpu(), sizes, generator).to(old.device)
        if runs(tried):
            return tried
    return dict(inputs)
