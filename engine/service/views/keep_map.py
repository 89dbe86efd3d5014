"""The keep set and the tile schedule over i and j, as the spec asks for them and as a target has
them: what a mask looks like, without running the kernel and without torch.

The spec's side evaluates the recipe's keep expression. The target's side evaluates the kernel's own
schedule functions and keep predicate: a pair is kept when a tile that holds it is visited and is
full or its predicate holds. Where the two differ, G2 fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.cuir.nodes import Module
from engine.cuir.static.device_scalars import DeviceScalars
from engine.scalar_algebra.arrays import values_of
from engine.service.views.target_mask import TargetMask, TileClass
from engine.spec.recipes.kept_pairs import (
    Table,
    example_value,
    extent,
    kept_pairs,
    loader,
    mask_inputs,
)
from engine.spec.recipes.recipe import Recipe
from engine.transfer.binding import Binding


@dataclass(frozen=True, slots=True)
class Pair:
    """Whether the spec keeps a pair (i, j), and whether the target does."""

    wanted: bool
    got: bool

    @property
    def same(self) -> bool:
        return self.wanted == self.got


class KeepMap:
    """One batch and head of a mask at given sizes; `row` gives the pairs of one query row.

    Extra inputs that the mask reads have the values of `table`: real ones are known on a run only.
    """

    def __init__(
        self,
        recipe: Recipe,
        module: Module | None,
        binding: Binding | None,
        sizes: Mapping[str, int],
        b: int = 0,
        h: int = 0,
        table: Table | None = None,
        base: Module | None = None,
        tile: tuple[int, int] = (64, 64),
    ) -> None:
        """Raises `CuBridgeError` with what cannot be drawn; `base` is the lifted module, `tile` the
        rows and keys of its tiles, for a mask without a target."""
        self.recipe, self.sizes, self.b, self.h = recipe, dict(sizes), b, h
        self._table = table or example_value
        self.keys, self.queries = sizes["Nk"], sizes["Nq"]
        self._tile = tile
        self._spec = kept_pairs(recipe, sizes, b, h, self._table)
        self.target: TargetMask | None = None
        if module is not None and binding is not None:
            space, arguments = binding.workspace, self._arguments(module, binding)
            if space is not None:
                # Bits are another writing of the predicate, which is what is drawn.
                arguments |= {space.planned: 0, space.slots: 0}
            field = space.field if space is not None else None
            self.target = TargetMask(module, arguments, sizes, b, h, base, field)

    @property
    def tables(self) -> tuple[str, ...]:
        """The extra inputs that the mask reads."""
        return tuple(item.name for item in mask_inputs(self.recipe))

    def examples(self) -> tuple[str, ...]:
        """The extra inputs that the mask reads, each with its first different values as drawn."""
        out = []
        for item in mask_inputs(self.recipe):
            dims = [d for d in item.dims if d != "1"]
            *lead, last = dims or [""]
            first = {d: {"B": self.b, "Hq": self.h}.get(d, 0) for d in lead}
            places: list[dict[str, int]] = [{}]
            if last in ("B", "Hq"):  # the one that is drawn
                places = [{last: {"B": self.b, "Hq": self.h}[last]}]
            elif last:
                places = [{last: n} for n in range(self.sizes.get(last, 1))]
            values = [self._table(item, {**first, **place}, self.sizes) for place in places]
            told = list(dict.fromkeys(map(str, values)))
            out.append(f"{item.name} {', '.join(told[:5])}{', …' * (len(told) > 5)}")
        return tuple(out)

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and keys of a tile: the rows that the kernel asks for a class of at once, which are
        a warpgroup's where a block has several."""
        return (self.target.part_rows, self.target.keys) if self.target else self._tile

    def wanted(self, i: int, j: int) -> bool:
        """Whether the spec keeps a pair."""
        return bool(self._spec(i, j))

    def row(self, i: int) -> list[Pair]:
        """The pairs of query row i."""
        wanted = self._spec
        keys = range(self.keys)
        spec = [bool(wanted(i, j)) for j in keys]
        got = self.target.row(i) if self.target is not None else spec
        return [Pair(w, g) for w, g in zip(spec, got, strict=True)]

    def steps(self, i: int) -> tuple[int, ...]:
        """The tiles that the rows of row i visit, in their order; none without a target."""
        return tuple(self.target.classes(i // self.tile[0])) if self.target is not None else ()

    def tile_class(self, i: int, j: int) -> TileClass:
        """What the target's schedule does with the tile that holds (i, j); without a target what a
        schedule could do: skip a tile of which the spec keeps no pair."""
        rows, keys = self.tile
        if self.target is not None:
            return self.target.classes(i // rows).get(j // keys, TileClass.SKIP)
        top, left = i // rows * rows, j // keys * keys
        own = np.arange(top, min(top + rows, self.queries))
        others = np.arange(left, min(left + keys, self.keys))
        at = {**self.sizes, "b": self.b, "h": self.h, "i": own[:, None], "j": others}
        kept = values_of(self.recipe.keep, at)
        if kept is None:  # what data says is asked for pair by pair
            kept = [[self.wanted(row, key) for key in others.tolist()] for row in own.tolist()]
        if not np.any(kept):
            return TileClass.SKIP
        return TileClass.FULL if np.all(kept) else TileClass.PARTIAL

    def _arguments(self, module: Module, binding: Binding) -> dict[str, Any]:
        """Every field of the argument struct that a mask may read."""
        inputs = {i.name: i for i in self.recipe.inputs}
        values: dict[str, Any] = {s.field: extent(s.size, self.sizes) for s in binding.sizes}
        for tensor in binding.tensors:
            item = inputs.get(tensor.source)
            if item is not None and item.role == "extra":
                values[tensor.field] = loader(item, tensor.dims, self.sizes, self._table)
        scalars = DeviceScalars({}, {})
        known = dict(self.sizes) | {
            i.name: self._table(i, {}, self.sizes) for i in inputs.values() if not i.dims
        }
        for scalar in binding.scalars:
            values[scalar.field] = scalars.compile(scalar.value)(dict(known))
        return values
