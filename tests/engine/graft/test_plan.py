"""What of a recipe is no edit of a foreign kernel."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.cuir.parser import parse_expr as expr
from engine.errors import TransferError
from engine.foreign.launcher import read_launcher
from engine.foreign.probe.places import Hook, Place
from engine.graft.plan import plan, refuse, refuse_numbers
from engine.spec.recipes.recipe import Input, Other, Recipe

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


FIXED = b"""\
void kernel(float s, int i, int j) {
  s *= 2;
}
void launch(float* q) { kernel(*q, 1, 2); }
"""


def test_a_head_size_that_the_launcher_is_not_told_is_a_number() -> None:
    file = Path("/k/a.cu")
    after = FIXED.index(b"s *= 2;") + 7
    place = Place(file, after, 2, "kernel", "s", 1, "s", {"i": "i", "j": "j"}, {}, "1.0f", "  ",
                  ("i", "j"))  # fmt: skip
    entry = read_launcher(FIXED.decode(), "a.cu", "launch", {}, "f32")
    (edit,) = plan(recipe("x * rsqrt(D)", "j < i + D"), [Hook((place,), 1, 1, 1, "seen")],
                   {file: FIXED}, file, entry, "-INFINITY", 48)  # fmt: skip
    assert edit.text == "\n  if (j >= i + 48) s = -INFINITY;"


def test_a_second_attention_is_refused() -> None:
    made = replace(recipe("x", "j <= i"), other=Other("q2", "k2", expr("o - o2")))
    with pytest.raises(TransferError, match="a second attention beside the first"):
        refuse(made)
