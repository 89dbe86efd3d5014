"""A line of two sides: they never touch, whatever is on them."""

from __future__ import annotations

import re

import pytest
from rich.cells import cell_len
from textual.app import App, ComposeResult

from cubridge_tui.actions import key_named
from cubridge_tui.widgets.line import Line


class Lines(App[None]):
    def compose(self) -> ComposeResult:
        yield Line(id="line")


@pytest.mark.parametrize("right", ["hunks of ops ", " lines ", "字"])
async def test_a_blank_stands_between_the_sides_at_any_length(right: str) -> None:
    app = Lines()
    async with app.run_test(size=(60, 3)):
        line = app.query_one(Line)
        seen = set()
        for count in range(80):
            line.put([(" Next: ", "dim"), ("x" * count, "title")], [(right, "dim")])
            shown = line.render_line(0).text
            assert line.render_line(0).cell_length == 60
            assert shown.rstrip().endswith(" " + right.strip()), repr(shown)
            said = " Next: " + "x" * count
            assert line.cut == (not shown.startswith(f"{said} ")), repr(shown)
            seen.add(line.cut)
        assert seen == {False, True}


async def test_what_is_aside_and_takes_over_half_goes_before_a_long_left_is_cut() -> None:
    async with Lines().run_test(size=(60, 3)) as pilot:
        line = pilot.app.query_one(Line)
        aside = [(" ", ""), ("m", "key"), (" " + "y" * 32, "dim")]
        for count, shown in ((20, True), (25, True), (26, False), (59, False), (60, False)):
            line.put([("x" * count, "dim")], aside)
            text = line.render_line(0).text
            assert ("y" in text) is shown and line.cut is (count > 60), text
            assert ("x" * count in text) is (count <= 60)
            assert ([line.key_at(x) for x in range(60)].count("m") > 0) is shown


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        ("Decide on 2 hunks: a accepts, x rejects, A accepts all", ("a", "x", "A")),
        ("Meanings: M asks a model, e on the op writes one by hand", ("M", "e")),
        ("undone: 最 rejected h4 (a title of the spec); U makes it again", ("U",)),
        ("The spec changed on disk: ! takes it in, or restore it", ("!",)),
        ("s adapts a kernel to a spec; tab changes lists", ("s", "tab")),
    ],
)
async def test_a_click_on_a_clause_presses_the_key_that_it_begins_with(
    words: str, keys: tuple[str, ...]
) -> None:
    async with Lines().run_test(size=(120, 5)) as pilot:
        line = pilot.app.query_one(Line)
        line.put([(" Next: ", "dim"), ("q", "key"), (f"  {words}", "title")])
        cells = [line.key_at(x) for x in range(cell_len(line.text))]
        assert set(cells) <= {"", "q", "exclamation_mark", *keys}
        for key in keys:
            before = line.text[: re.search(rf"(?<=[ ]){re.escape(key)} \w+", line.text).start()]  # type: ignore[union-attr]
            at = cell_len(before)
            pressed = key_named(key)
            assert cells[at] == cells[at + len(key) + 2] == pressed
            assert cells[at - 2] != pressed or at < 10


def test_a_pass_that_visits_tiles_for_nothing_is_amber_and_costs_are_in_the_bar() -> None:
    from types import SimpleNamespace

    from cubridge_tui.widgets.stage_bar import AMBER, _forms, in_vain
    from engine.types import Gate, Level, Verdict, VerdictKind

    tiles = {"tiles": {"case": "B 2", "visited": 48, "in_vain": 12}}
    amber = Verdict(Gate.G2, VerdictKind.PASS, "equal", details=tiles)
    assert in_vain(amber) == "25%"
    assert in_vain(Verdict(Gate.G2, VerdictKind.FAIL, "no", details=tiles)) == ""
    assert in_vain(Verdict(Gate.G2, VerdictKind.PASS, "equal")) == ""
    state = SimpleNamespace(
        stage=lambda _: SimpleNamespace(artifacts={"kernel.cu": "1"}), verdicts=(amber,),
        verdict=lambda gate: amber if gate is Gate.G2 else None, level=Level.NONE, acceptance=None,
    )  # fmt: skip
    forms = list(_forms(state, ("on A100 8,580 us, 0.65 x expert's time ", "0.65 ")))  # type: ignore[arg-type]
    words = ["".join(t for t, _ in (*left, *right)) for left, right in forms]
    assert "G2 ✓° pass, 25% of its tiles for nothing" in words[0] and "8,580 us" in words[0]
    assert ("G2✓°", "stale") in forms[-1][0] and AMBER == "°"
    named = ["target G2" in w for w in words]
    assert named == sorted(named, reverse=True)  # the stages' names go first
    assert all("level none" in w and "G4" in w for w in words)  # at any width
    assert ["0.65" in w for w in words] == [True] * (len(words) - 1) + [False]
