"""Which pairs (i, j) a recipe keeps, by its keep expression alone: no kernel, no torch.

Extra inputs that a mask reads have the values of a table: real ones are known on a run only, and
examples stand for them elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import accumulate
from typing import Any

from engine.cuir.nodes import free_names
from engine.cuir.parser import parse_expr
from engine.cuir.scalar import Env, evaluate
from engine.cuir.static.device_scalars import DeviceScalars
from engine.errors import CuirError
from engine.spec.recipes.recipe import Input, Recipe

# An extra input's value at named dimensions: `table(input, {"b": 0, "Nk": 5}, sizes)`.
Table = Callable[[Input, Mapping[str, int], Mapping[str, int]], int | float | bool]

ROWS = 32  # query rows, evenly apart, whose kept keys are counted
_DOCUMENTS = (29, 6, 17, 3, 11, 22, 4, 8)  # hundredths of a row: lengths of packed documents
EXAMPLES = (
    f"example values of what the mask reads (of ids: {len(_DOCUMENTS)} documents of "
    f"{min(_DOCUMENTS)} to {max(_DOCUMENTS)}% of a row)"
)


def example_value(
    item: Input, at: Mapping[str, int], sizes: Mapping[str, int]
) -> int | float | bool:
    """An example of an extra input: runs as long as a batch's documents for tables of numbers (a
    few long ones, more short ones, other ones in each batch), a checkered table of
    flags, and three quarters of the keys (for later batches or heads fewer) for a number that goes
    with no row or key, as a length does; a mask over it shows its shape, not a person's data."""
    places = list(at.items())
    if item.dtype in ("i32", "i64") and not {"Nq", "Nk"} & at.keys():
        # The one dimension that is left, or several: a place further on has a shorter length.
        return max(sizes.get("Nk", 1) * 3 // (4 + sum(at.values())), 1)
    if not places:
        return 1
    if item.dtype == "bool" and len(places) > 1:
        return sum(index // 24 for _, index in places[-2:]) % 2 == 0
    name, index = places[-1]
    turn = sum(at.values()) - index  # the batch's
    ends = accumulate((*_DOCUMENTS[turn % len(_DOCUMENTS) :], *_DOCUMENTS))
    place = index * sum(_DOCUMENTS) // max(sizes.get(name, 1), 1)
    run = next((n for n, end in enumerate(ends) if place < end), 0)
    return run % 2 == 0 if item.dtype == "bool" else run


def extent(dim: str, sizes: Mapping[str, int]) -> int:
    """The value of a dimension: a number, a name (1 where unknown), or an expression of sizes."""
    if dim.isidentifier():
        return sizes.get(dim, 1)
    return int(evaluate(parse_expr(dim, "dimension"), dict(sizes)))


def loader(
    item: Input, dims: tuple[str, ...], sizes: Mapping[str, int], table: Table
) -> Callable[..., int | float | bool]:
    """What a load of an input gives, by its indices; 0 outside of it."""

    @lru_cache(1 << 16)  # a picture's rows ask for the same places
    def load(*index: int) -> int | float | bool:
        at = dict(zip(dims, index, strict=True))
        if any(not 0 <= i < extent(d, sizes) for d, i in at.items()):
            return 0
        return table(item, {d: i for d, i in at.items() if d != "1"}, sizes)

    return load


def kept_pairs(
    recipe: Recipe, sizes: Mapping[str, int], b: int = 0, h: int = 0, table: Table = example_value
) -> Callable[[int, int], Any]:
    """Whether a recipe keeps a pair (i, j) of one batch and head.

    Raises:
        CuirError: the keep expression is none that plain numbers can be put into.
    """
    env: Env = dict(sizes) | {"b": b, "h": h}
    for item in recipe.extra():
        dims = item.dims  # a scalar input has none
        env[item.name] = loader(item, dims, sizes, table) if dims else table(item, {}, sizes)
    keep = DeviceScalars({}, {}).compile(recipe.keep)

    def kept(i: int, j: int) -> Any:
        env["i"], env["j"] = i, j
        return keep(env)

    return kept


def mask_inputs(recipe: Recipe) -> tuple[Input, ...]:
    """The extra inputs that the mask reads."""
    names = free_names(recipe.keep)
    return tuple(i for i in recipe.extra() if i.name in names)


def kept_share(recipe: Recipe, sizes: Mapping[str, int]) -> float:
    """The share of pairs that a mask keeps, in (0, 1], counted at `ROWS` rows of the first batch
    and head, with example values of the inputs that it reads.

    Raises:
        CuirError: the mask cannot be computed with these.
    """
    kept = kept_pairs(recipe, {**sizes, "D": 128, "Dv": 128})
    queries, keys = sizes["Nq"], sizes["Nk"]
    rows = [(2 * n + 1) * queries // (2 * ROWS) for n in range(ROWS)]
    try:
        count = sum(bool(kept(i, j)) for i in rows for j in range(keys))
    except ArithmeticError as error:  # an example is no divisor
        raise CuirError(f"the mask cannot be computed with example values: {error}") from None
    return max(count, 1) / (len(rows) * keys)
