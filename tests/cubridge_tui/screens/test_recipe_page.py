"""The recipe page: every clause can be read whole, beside or under the spec's uncut lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from cubridge_tui.screens.recipe import RecipeScreen
from cubridge_tui.widgets.code_pane import CodePane
from tests.cubridge_tui.screens.test_adaptation import Driver

pytestmark = pytest.mark.usefixtures("no_warm_up")


@pytest.mark.parametrize("size", [(80, 24), (100, 30), (120, 40), (160, 48), (200, 60), (300, 80)])
async def test_clauses_are_whole_and_the_spec_is_not_cut(
    proposed: tuple[Path, str], size: tuple[int, int]
) -> None:
    async with Driver(proposed[1], size) as d:
        snap = d.screen.snap
        assert snap is not None and snap.recipe is not None
        await d.press("r")
        screen = d.app.screen
        assert isinstance(screen, RecipeScreen)
        spec, words = (screen.query_one(f"#{name}", CodePane) for name in ("spec", "words"))
        room = words.scrollable_content_region.width - words.gutter_width
        assert all(len(row.text) <= room for row in words.content.rows)
        told = " ".join(" ".join(row.text.split()) for row in words.content.rows)
        for clause in snap.recipe.clauses:
            assert " ".join(clause.words.split()) in told
        for pane in (spec, words):  # both are in sight, with more than a line or two
            assert pane.region.height > 6
            assert screen.region.contains_region(pane.region)
        if size[0] >= 120:
            longest = max(len(row.text) for row in spec.content.rows)
            assert spec.scrollable_content_region.width >= longest + spec.gutter_width
        # A wrapped clause still marks the spec's lines from each of its pieces.
        cut = next((i for i, r in enumerate(words.content.rows) if r.text.startswith("   ")), None)
        if cut is not None:
            assert screen._clauses[cut][1] == screen._clauses[cut - 1][1]
