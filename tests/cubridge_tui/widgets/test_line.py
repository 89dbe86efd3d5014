"""A line of two sides: they never touch, whatever is on them."""

from __future__ import annotations

import pytest
from textual.app import App, ComposeResult

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
