"""Hold a recipe against the spec's own function: a misread recipe never leaves this package."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

from engine.errors import SpecError
from engine.spec.python.dimension_sizes import CHECK_SIZES, REMAINDER_SIZES, Domain
from engine.spec.python.program import Program, large_integers
from engine.spec.recipes.recipe import EmptyRows, Recipe
from engine.spec.validation.python_branches import Tried, new_watch, try_both_sides
from engine.spec.validation.run_comparison import compare
from engine.spec.validation.usage_conditions import (
    check_calls,
    check_head_sizes,
    check_types,
    counted_in_low_types,
)

LARGEST_STRETCH = 8_300  # a spec may build masks of Nk times Nk
LARGEST_SQUARE = 600
MAX_STRETCHES = 3


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the comparison found beside equality: how the spec fills rows that keep no key, and
    the lines that count positions in a type too low for them."""

    empty_rows: EmptyRows
    rounded: tuple[int, ...]


def validate_recipe(
    program: Program,
    recipe: Recipe,
    domain: Domain,
    varied: frozenset[int] = frozenset(),
    head_sizes: Sequence[tuple[int, int]] = (),
    looked: bool = False,
) -> Outcome:
    """Compare at several sizes, flat and peaked. Raises `SpecError` at the first difference.

    Sizes beyond every integer in the spec are among them: a window of 1024, or a `min(window, Nk)`
    in Python, has no effect at the small sizes of the trace. So are sizes that turn a comparison of
    Python's, the head sizes of kernels, low precision, and call after call. `varied` are integers
    that the reading gave other values, `head_sizes` more pairs (D, Dv) than the usual ones. Where
    Python has `looked` at values of inputs, integers past those of the file are drawn too.
    """
    fills: set[EmptyRows] = set()
    tried = Tried({}, {})

    def watched(sizes: Mapping[str, int], seed: int) -> set[EmptyRows]:
        watch, at = new_watch(program), domain.within(sizes)
        found = compare(program, recipe, at, 1.0, seed, watch)
        tried.add(watch, at)
        return found

    def where_defined(run: Callable[[], set[EmptyRows]]) -> set[EmptyRows]:
        """Nothing where the spec itself fails: a prefix may need more keys, and a table of
        positions may end before these lengths. Then they are not the spec's."""
        try:
            return run()
        except SpecError as error:
            if error.__cause__ is None:
                raise
            return set()

    for at, sizes in enumerate(CHECK_SIZES):
        fills |= watched(sizes, 100 + 2 * at)
        fills |= compare(program, recipe, domain.within(sizes), 10.0, 101 + 2 * at)
    for seed, sizes in enumerate(REMAINDER_SIZES, 100 + 2 * len(CHECK_SIZES)):
        fills |= where_defined(partial(watched, sizes, seed))
    fills |= try_both_sides(program, recipe, domain, tried, varied)
    for seed, sizes in enumerate(stretched(program), 200):
        at_these = domain.within(sizes)
        fills |= where_defined(partial(compare, program, recipe, at_these, 1.0, seed))
    # Of numbers far more than there are keys, most queries' are no key's.
    draws = [(CHECK_SIZES[1], 50)]
    if looked:
        ends = [v + v // 2 for v in sorted(large_integers(program.source))[-MAX_STRETCHES:]]
        draws = list(product(CHECK_SIZES, (10, 50, *ends)))
    for seed, (sizes, most) in enumerate(draws, 300):
        at_these = domain.within(sizes)
        fills |= where_defined(partial(compare, program, recipe, at_these, 1.0, seed, None, most))
    check_head_sizes(program, recipe, domain, head_sizes)
    check_types(program, recipe, domain)
    check_calls(program, domain)
    rounded = counted_in_low_types(program, domain)
    if not fills:
        return Outcome("never", rounded)
    return Outcome(next(iter(fills)) if len(fills) == 1 else "spec-defined", rounded)


def stretched(program: Program) -> list[Mapping[str, int]]:
    """Few rows with many keys and the reverse, past the integers that stand in the file."""
    wanted = sorted(
        (v for v in large_integers(program.source) if v <= LARGEST_STRETCH), reverse=True
    )
    base = {"B": 1, "Hq": 2, "Hkv": 1, "D": 4, "Dv": 4}
    out: list[Mapping[str, int]] = []
    for value in wanted[:MAX_STRETCHES]:
        out.append({**base, "Nq": 5, "Nk": value + 9})
        out.append({**base, "Nq": value + 9, "Nk": 5})
    square = next((v for v in wanted if v <= LARGEST_SQUARE), None)
    if square is not None:
        out.append({**base, "Nq": square + 9, "Nk": square + 9})
    return out
