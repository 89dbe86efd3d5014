"""Python's own branches on sizes: a comparison that a run decided one way is tried the other way.

The sizes where it turns are run and compared like any other. Where they are too large to run, the
spec is run with the other answer given: what it computes then must be the recipe still, or nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from engine.cuir.nodes import Name, Num, walk_expr
from engine.cuir.printer import print_expr
from engine.errors import SpecError, Where
from engine.scalar_algebra.evaluate import compile_expr
from engine.spec.python.dimension_sizes import Domain, slots
from engine.spec.python.program import Program
from engine.spec.recipes.recipe import EmptyRows, Recipe
from engine.spec.validation.python_comparisons import Branch, Watch
from engine.spec.validation.run_comparison import Misread, compare, dims_at

LARGEST = 8_300  # of one dimension: a spec may build masks of Nk times Nk
LARGEST_SQUARE = 600
MOST_SCORES = 4_000_000
MOST_RUNS = 64
_USUAL = range(1, 321)
_FAR = tuple(2**n + e for n in range(9, 31) for e in (-1, 0, 1))
_SMALLEST: Mapping[str, int] = {"B": 1, "Hq": 2, "Hkv": 1, "Nq": 5, "Nk": 7, "D": 4, "Dv": 4}


@dataclass(slots=True)
class Tried:
    """Which answers of which comparison have been run, and the sizes of the first run."""

    answers: dict[Branch, set[bool]]
    at: dict[Branch, Mapping[str, int]]

    def add(self, watch: Watch, sizes: Mapping[str, int]) -> None:
        for branch, answer in watch.seen.items():
            self.answers.setdefault(branch, set()).add(answer)
            self.at.setdefault(branch, sizes)

    def one_sided(self) -> Branch | None:
        return next((b for b, found in self.answers.items() if len(found) == 1), None)


def integers_of(program: Program) -> frozenset[int]:
    """The integers of the file and of its scalars that a size may be looked up by."""
    scalars = {s.value for s in program.source.scalars if type(s.value) is int}
    return frozenset(n for n in _literals(program.source.tree) | scalars if 1 <= n <= LARGEST)


@lru_cache(maxsize=16)
def _literals(tree: ast.Module) -> frozenset[int]:
    """The integers of a file, which is asked for them at each of its runs."""
    constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return frozenset(node.value for node in constants if type(node.value) is int)


def new_watch(program: Program, forced: Mapping[Branch, bool] | None = None) -> Watch:
    return Watch(program.source.path, integers_of(program), forced or {})


def try_both_sides(
    program: Program, recipe: Recipe, domain: Domain, tried: Tried, varied: frozenset[int]
) -> set[EmptyRows]:
    """Run the answers that no run has given yet. `varied` are integers that the reading itself gave
    other values. Raises `Misread` at the comparison's line where the recipe does not hold."""
    fills: set[EmptyRows] = set()
    runs = 0
    while (branch := tried.one_sided()) is not None and runs < MOST_RUNS:
        (answer,) = tried.answers[branch]
        tried.answers[branch].add(not answer)  # tried once, whatever comes of it
        found, beyond = _turned(program, branch, answer, tried.at[branch], domain)
        if found is not None:
            runs += 1
            watch = new_watch(program)
            try:
                fills |= compare(program, recipe, found, 1.0, 300 + runs, watch)
            except Misread as error:
                raise _at_line(program, branch, not answer, error) from None
            except SpecError as error:
                if error.__cause__ is None:
                    raise
                continue  # raised by the spec itself: these sizes are not its own
            tried.add(watch, found)
        elif beyond and not varied & _numbers(branch):
            runs += 1
            _force(program, recipe, branch, not answer, tried.at[branch])
    return fills


def _force(
    program: Program, recipe: Recipe, branch: Branch, answer: bool, sizes: Mapping[str, int]
) -> None:
    """The spec with `answer` given where its sizes say the other. What raises then is
    refused by the spec itself."""
    try:
        compare(program, recipe, sizes, 1.0, 299, new_watch(program, {branch: answer}))
    except Misread as error:
        raise _at_line(program, branch, answer, error) from None
    except SpecError as error:
        if error.__cause__ is None:
            raise


def _at_line(program: Program, branch: Branch, answer: bool, error: Misread) -> Misread:
    test = print_expr(branch.test)
    what = f"where {test}" if answer else f"where {test} is false"
    _, _, gap = error.message.partition(": ")
    return Misread(
        f"the spec computes something else {what}: {gap}",
        where=Where(branch.file, branch.line),
        fix="compute it from the sizes with one formula, without branches on them, or put each "
        "case in a spec of its own",
    )  # fmt: skip


def _numbers(branch: Branch) -> frozenset[Any]:
    return frozenset(e.value for e in walk_expr(branch.test) if isinstance(e, Num))


def _turned(
    program: Program, branch: Branch, answer: bool, seen_at: Mapping[str, int], domain: Domain
) -> tuple[Mapping[str, int] | None, bool]:
    """Sizes that turn the comparison and can be run; else whether larger ones would turn it."""
    test = compile_expr(branch.test)
    slot = slots(program.tensors)
    names = [e.id for e in walk_expr(branch.test) if isinstance(e, Name)]
    beyond = False
    for base in (seen_at, {**seen_at, **_SMALLEST}):
        for name in dict.fromkeys(slot[n] for n in names if n in slot):
            for value in _candidates(branch):
                sizes = domain.within(_with(base, name, value))
                if not _turns(test, dims_at(program, sizes), answer):
                    continue
                if _can_run(sizes):
                    return sizes, False
                beyond = True
    return None, beyond


def _turns(test: Callable[[Any], Any], dims: Mapping[str, int], answer: bool) -> bool:
    try:
        return bool(test(dict(dims))) is not answer
    except (ArithmeticError, KeyError, ValueError):
        return False


def _candidates(branch: Branch) -> Iterator[int]:
    numbers = sorted(int(n) for n in _numbers(branch) if abs(n) < 2**31)
    near = {n * m + e for n in numbers for m in (1, 2) for e in (-1, 0, 1)}
    yield from sorted(n for n in {*_USUAL, *near, *_FAR} if n > 0)


def _with(base: Mapping[str, int], name: str, value: int) -> Mapping[str, int]:
    """`base` with one size changed; head counts stay multiples."""
    out = {**base, name: value}
    if name in ("Hq", "Hkv") and out["Hq"] % out["Hkv"]:
        out["Hkv" if name == "Hq" else "Hq"] = 1 if name == "Hq" else value
    return out


def _can_run(sizes: Mapping[str, int]) -> bool:
    scores = sizes["B"] * sizes["Hq"] * sizes["Nq"] * sizes["Nk"]
    return (
        max(sizes.values()) <= LARGEST
        and min(sizes["Nq"], sizes["Nk"]) <= LARGEST_SQUARE
        and scores <= MOST_SCORES
        and sizes["B"] * sizes["Hq"] * max(sizes["Nq"], sizes["Nk"]) * max(sizes["D"], sizes["Dv"])
        <= MOST_SCORES
    )
