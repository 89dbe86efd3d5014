"""What of a recipe is no edit of a foreign kernel."""

from __future__ import annotations

import pytest

from engine.cuir.parser import parse_expr as expr
from engine.errors import TransferError
from engine.graft.plan import refuse_numbers
from engine.spec.recipes.recipe import Input, Recipe

CAP = Input("cap", "extra", "f32", ())
SLOPES = Input("slopes", "extra", "f32", ("Hq",))


def recipe(score: str, keep: str, *inputs: Input) -> Recipe:
    return Recipe("eager", inputs, expr(score), expr(keep), None, expr("h"),
                  ("B", "Hq", "Nq", "Dv"), "nan")  # fmt: skip


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (recipe("x * cap", "j <= i", CAP), "the spec's cap is a tensor without dimensions"),
        (recipe("x", "j > i - window"), "the spec's window is a number of the caller"),
    ],
)
def test_a_number_of_the_caller_is_refused(made: Recipe, words: str) -> None:
    with pytest.raises(TransferError, match=words):
        refuse_numbers(made)


def test_inputs_with_dimensions_are_none() -> None:
    refuse_numbers(recipe("x + slopes[h] * (j - i)", "j <= i + Nk - Nq and b < B", SLOPES))
