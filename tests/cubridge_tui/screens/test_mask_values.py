"""Values of tables and numbers that a person types for the mask, kept with the session."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from textual.widgets import Input as Typed

from cubridge_tui.model import mask_values
from cubridge_tui.screens.mask import MaskScreen
from cubridge_tui.widgets.line import Line
from engine.service.views.keep_map import KeepMap
from engine.spec.recipes.kept_pairs import example_value
from engine.spec.recipes.recipe import Input, Recipe
from engine.types import Stage
from tests.cubridge_tui.made import placed
from tests.cubridge_tui.screens.test_adaptation import Driver
from tests.engine.transfer.recipes import recipe

pytestmark = pytest.mark.usefixtures("no_warm_up")
DOC = Input("doc", "extra", "i32", ("B", "Nk"))
WINDOW = Input("window", "extra", "i32", ())
FLAGS = Input("flags", "extra", "bool", ("1", "Nq", "Nk"))
SIZES = {"B": 2, "Hq": 1, "Hkv": 1, "Nq": 8, "Nk": 8, "D": 64, "Dv": 64}
BOTH = recipe(keep="doc[b, i] == doc[b, j] and i - j < window", extra=(DOC, WINDOW))


def kept(wanted: Recipe, given: dict[str, str], b: int = 0) -> list[str]:
    picture = KeepMap(wanted, None, None, SIZES, b, table=mask_values.table(given))
    return ["".join("#" if p.wanted else "." for p in picture.row(i)) for i in range(8)]


def test_the_picture_has_the_values_that_were_typed() -> None:
    docs = {"doc": "0*3 1*2 2; 7", "window": "99"}
    rows = kept(BOTH, docs)
    assert rows == [
        "###.....",
        "###.....",
        "###.....",
        "...##...",
        "...##...",
        *["....." + "###"] * 3,
    ]
    assert kept(BOTH, docs, b=1) == ["########"] * 8  # the second row, whose last value goes on
    assert kept(BOTH, docs | {"window": "1"})[2] == "..#....."
    wanted = recipe(keep="flags[0, i, j]", extra=(FLAGS,))
    assert kept(wanted, {"flags": "1, 0; 0 true*2 0"})[:3] == ["#.......", ".##.....", ".##....."]
    # What is not given, or is none of the input's values any more, is the example.
    assert kept(BOTH, {}) == kept(BOTH, {"doc": "x", "window": "1 2", "gone": "5"})
    table = mask_values.table({"window": "5"})
    assert table(DOC, {"B": 0, "Nk": 5}, SIZES) == example_value(DOC, {"B": 0, "Nk": 5}, SIZES)


@pytest.mark.parametrize(
    ("item", "text", "why"),
    [
        (DOC, "0 x", "x is no whole number"),
        (DOC, "0 1.5", "1.5 is no whole number"),
        (DOC, "0*0", "after * stands how often"),
        (DOC, "0*-2", "after * stands how often"),
        (DOC, "*3", "is no whole number"),
        (DOC, "0 1;", "a row has no value"),
        (DOC, "3000000000", "does not fit 32 bits"),
        (WINDOW, "1 2", "one value"),
        (WINDOW, "1*2", "one value"),
        (WINDOW, "1;2", "no `;`"),
        (FLAGS, "2", "no flag"),
        (replace(WINDOW, dtype="f32"), "wide", "no number"),
    ],
)
def test_what_is_no_value_is_said(item: Input, text: str, why: str) -> None:
    assert why in mask_values.problem(item, text)


def test_what_to_type_names_dimensions_and_type() -> None:
    assert "doc[B, Nk], i32" in mask_values.asks(DOC) and "row of B" in mask_values.asks(DOC)
    assert "window, i32" in mask_values.asks(WINDOW)
    assert mask_values.problem(DOC, "") == "" == mask_values.problem(DOC, "0*3 1, 2; 4")
    assert mask_values.unreached(DOC, "0*6 1*5; 2", SIZES) == 3
    assert mask_values.unreached(WINDOW, "3", SIZES) == 0


async def test_typed_values_are_drawn_and_kept_with_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.git"
    monkeypatch.setenv("CUBRIDGE_STORE", str(path))
    session = placed(path, Stage.TARGET)

    async def opened(d: Driver) -> MaskScreen:
        snap = d.screen.snap
        assert snap is not None
        d.screen.show(replace(snap, recipe=BOTH, target=None, binding=None))
        await d.press("m")
        screen = d.app.screen
        assert isinstance(screen, MaskScreen)
        return screen

    async def typed(d: Driver, text: str) -> None:
        d.app.screen.query_one(Typed).value = text
        await d.press("enter")

    async with Driver(session, (80, 24)) as d:
        screen = await opened(d)
        await d.press("e", "enter")  # of several inputs, the first
        assert "doc[B, Nk], i32" in d.text
        await typed(d, "0*3 x")
        assert "x is no whole number" in d.text
        await typed(d, "0*3 1*100000")
        assert "values lie past the end" in d.text
        await d.press("e", "j", "enter")
        await typed(d, "100000")
        grid = screen.pane.grid
        assert grid is not None
        for row in (0, 3):
            grid.compute(row)
        first, fourth = grid.pair(0, 2), grid.pair(3, 2)
        assert first is not None and first.wanted
        assert fourth is not None and not fourth.wanted
        line = screen.query_one("#decision", Line).text
        assert "your values: doc 0, 1" in line and "example" not in line
        await d.press("escape")
    async with Driver(session, (80, 24)) as d:
        screen = await opened(d)
        assert screen.subject.values == {"doc": "0*3 1*100000", "window": "100000"}
        await d.press("e", "j", "enter")
        await typed(d, "")  # back to the example
        assert screen.subject.values == {"doc": "0*3 1*100000"}
        line = screen.query_one("#decision", Line).text
        assert "your values: doc 0, 1" in line and "example values: window" in line
