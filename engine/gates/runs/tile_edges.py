"""What a mask reads, drawn so that one end of a tile of keys or of a block of rows is apart.

A kernel that classes tiles asks for the least and the greatest of a range. One that is begun late
or ended early is right for nearly all inputs: the key that it leaves out must alone be the least or
the greatest. Runs need such draws only where nothing is proven of the classes.

Runs in the torch child only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from engine.cuir.nodes import names_in
from engine.gates.deck import Case, Tiles, in_turn
from engine.spec.decks.deck_inputs import in_range
from engine.spec.recipes.recipe import Recipe

SAME = 2
# What a range holds, what its one end does, and which end that is: all the same first.
WAYS = (
    (SAME, SAME, 0),
    *(
        (rest, end, at)
        for at in (0, -1)
        for rest, end in ((SAME, 1), (SAME, 3), (1, SAME), (3, SAME))
    ),
)
APART = "ends apart"  # of a case's `values`; its turn is the way


def apart(tiles: Tiles) -> tuple[Case, ...]:
    """A block of few rows of which all read the same behind a tile of keys in each way; and one in
    each way behind tiles that are all the same. Squares, so that it is the last block wherever a
    mask is aligned."""
    most = tiles.rows * -(-len(WAYS) * tiles.keys // tiles.rows) + 9
    least = max(tiles.rows, tiles.keys) + 9
    return (
        in_turn(most, most, APART, turn=0),
        *(in_turn(least, least, APART, turn=way, slots=1) for way in range(1, len(WAYS))),
    )


def ends_apart(
    recipe: Recipe, inputs: Mapping[str, Any], sizes: Mapping[str, int], tiles: Tiles, way: int
) -> dict[str, Any]:
    """The inputs, with what the mask reads along rows or along keys made of ranges: in way 0 the
    first tiles of keys are one of `WAYS` each; in another way the last few places are a range in
    that way. All else is the same. A flag is true where the number is at least `SAME`."""
    read = names_in(recipe.keep)
    out = dict(inputs)
    for item in recipe.inputs:
        along = [place for place, dim in enumerate(item.dims) if dim in ("Nq", "Nk")]
        if item.derive is not None or item.name not in read or len(along) != 1:
            continue
        was: Tensor = inputs[item.name]
        line = _line(was.shape[along[0]], tiles, way)
        shape = [-1 if place == along[0] else 1 for place in range(was.dim())]
        value = line >= SAME if was.dtype == torch.bool else line.to(was.dtype)
        out[item.name] = value.reshape(shape).expand(was.shape).clone()
    return in_range(recipe, sizes, out, torch.Generator().manual_seed(0))


def _line(length: int, tiles: Tiles, way: int) -> Tensor:
    """The numbers along one dimension."""
    out = torch.full((length,), SAME)
    last = max(tiles.rows, tiles.keys)
    placed = {last: way} if way else {n * tiles.keys: n for n in range(len(WAYS))}
    for first, one in placed.items():
        part = out[first : first + (last if way else tiles.keys)]
        if part.numel():
            rest, end, at = WAYS[one]
            part[:] = rest
            part[at] = end
    return out
