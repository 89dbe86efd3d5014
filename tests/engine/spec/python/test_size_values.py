"""Sizes that remember comparisons: integers in all else, and their expressions tell the truth."""

from __future__ import annotations

import operator
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cuir.nodes import Compare, Name, Num
from engine.scalar_algebra.evaluate import evaluate
from engine.spec.python.size_values import MAX_NODES, Size
from engine.spec.validation.python_comparisons import MAX_PER_LINE, Branch, Watch

DIMS = {"Nq": 21, "Nk": 47, "D": 16}
ARITHMETIC = (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod)
COMPARISONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)


def watch_here(forced: dict[Branch, bool] | None = None) -> Watch:
    return Watch(Path(__file__), frozenset({64, 128}), forced or {})


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Callable[[Watch], int], int]:
    """A size built by arithmetic, and the plain integer that the same arithmetic gives."""
    name = draw(st.sampled_from(sorted(DIMS)))
    steps = draw(
        st.lists(
            st.tuples(st.sampled_from(ARITHMETIC), st.integers(1, 40), st.booleans()), max_size=4
        )
    )

    def build(start: int) -> int:
        for op, number, mirrored in steps:
            zero = mirrored and int(start) == 0 and op in (operator.floordiv, operator.mod)
            start = op(number, start) if mirrored and not zero else op(start, number)
        return start

    return (lambda watch: build(Size.of(DIMS[name], Name(name), watch))), build(DIMS[name])


@given(pairs())
def test_arithmetic_is_that_of_integers_and_of_the_expression(
    pair: tuple[Callable[[Watch], int], int],
) -> None:
    make, plain = pair
    size = make(watch_here())
    assert int(size) == plain
    assert isinstance(size, Size)
    assert evaluate(size.expr, DIMS) == plain


@given(pairs(), st.sampled_from(COMPARISONS), st.one_of(st.integers(-50, 50), st.floats(-50, 50)))
def test_comparisons_are_those_of_integers_and_noted(
    pair: tuple[Callable[[Watch], int], int], op: Callable[[object, object], bool], other: float
) -> None:
    make, plain = pair
    watch = watch_here()
    assert op(make(watch), other) is op(plain, other)
    ((branch, answer),) = watch.seen.items()
    assert evaluate(branch.test, DIMS) is answer
    assert branch.file == __file__


def test_a_size_in_a_table_is_compared_with_every_integer_of_the_file() -> None:
    watch = watch_here()
    size = Size.of(16, Name("D"), watch)
    assert {16: "found"}.get(size) == "found"
    tests = {branch.test for branch in watch.seen}
    assert {Compare("==", Name("D"), Num(64)), Compare("==", Name("D"), Num(128))} <= tests


def test_a_forced_answer_is_given() -> None:
    watch = watch_here()
    size = Size.of(16, Name("D"), watch)
    truths = []
    for again in range(2):
        truths.append(size > 100)
        if not again:
            watch.forced = {next(iter(watch.seen)): True}
    assert truths == [False, True]


def test_a_loop_makes_few_comparisons() -> None:
    watch = watch_here()
    size, n = Size.of(1000, Name("Nk"), watch), 0
    while size > n:
        n += 1
    assert n == 1000
    assert len(watch.seen) == MAX_PER_LINE


def test_comparisons_of_other_files_are_not_the_specs(tmp_path: Path) -> None:
    watch = Watch(tmp_path / "spec.py", frozenset())
    assert Size.of(16, Name("D"), watch) == 16
    assert not watch.seen


def test_what_a_loop_adds_up_becomes_a_plain_number() -> None:
    watch = watch_here()
    size = Size.of(3, Name("D"), watch)
    total: int = 0
    plain = 0
    for _ in range(100):
        total = total + size
        plain += not isinstance(total, Size)
    assert total == 300
    assert plain >= 100 // MAX_NODES


@pytest.mark.parametrize("value", [0, 5])
def test_truth_is_noted(value: int) -> None:
    watch = watch_here()
    assert bool(Size.of(value, Name("D"), watch)) is bool(value)
    assert [b.test for b in watch.seen] == [Compare("!=", Name("D"), Num(0))]
