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
                   {file: FIXED}, file, entry, "-INFINITY", 48, True)  # fmt: skip
    assert edit.text == "\n  if (j >= i + 48) s = -INFINITY;"


def test_a_second_attention_is_refused() -> None:
    made = replace(recipe("x", "j <= i"), other=Other("q2", "k2", expr("o - o2")))
    with pytest.raises(TransferError, match="a second attention beside the first"):
        refuse(made)


TWO = b"""\
template <int D>
void kernel(float s, int i, int j) {
  s *= 2;
}
void launch(float* q, int D) { D == 64 ? kernel<64>(*q, 1, 2) : kernel<128>(*q, 1, 2); }
"""


def of_two(first: tuple[str, ...], second: tuple[str, ...], row: str = "i") -> list[Hook]:
    """One place in two instantiations, with what makes a score of it in each."""
    file, after = Path("/k/a.cu"), TWO.index(b"s *= 2;") + 7
    return [
        Hook((Place(file, after, 3, "kernel", "s", 1, "s", {"i": i, "j": "j"}, {}, scales[0], "  ",
                    ("i", "j"), scales[1:]),), 1, 1, 1, "seen")
        for scales, i in ((first, "i"), (second, row))
    ]  # fmt: skip


def test_what_is_written_for_two_instantiations_is_right_in_both() -> None:
    file = Path("/k/a.cu")
    entry = read_launcher(TWO.decode(), "a.cu", "launch", {}, "f32")

    def made(hooks: list[Hook]) -> str:
        capped = recipe("tanh(x * rsqrt(D))", "True")
        (edit,) = plan(capped, hooks, {file: TWO}, file, entry, "-INFINITY", 64, True)
        return edit.text

    both = of_two(("0.125f", "rsqrtf(float(D))"), ("0.0883883476f", "rsqrtf(float(D))"))
    assert made(both) == "\n  s = tanhf(s * rsqrtf(float(D))) / rsqrtf(float(D));"
    assert made(of_two(("0.125f",), ("0.125f",))) == "\n  s = tanhf(s * 0.125f) / 0.125f;"
    with pytest.raises(TransferError, match="no one text there makes them scale"):
        made(of_two(("0.125f",), ("0.0883883476f",)))
    moved = of_two(("1.0f",), ("1.0f",), "i + 8")  # the row has no one text, and none is needed
    assert made(moved) == "\n  s = tanhf(s);"
    with pytest.raises(TransferError, match="nothing in scope there is row"):
        masked = recipe("x * rsqrt(D)", "j <= i")
        plan(masked, moved, {file: TWO}, file, entry, "-INFINITY", 64, True)
