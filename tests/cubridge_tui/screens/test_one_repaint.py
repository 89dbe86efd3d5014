"""A key is answered by one repaint: arranging and painting the screen twice doubles its wait."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cubridge_tui.model.rows import RowKind
from cubridge_tui.widgets.code_pane import CodePane
from tests.cubridge_tui.screens.test_adaptation import Driver

pytestmark = pytest.mark.usefixtures("no_warm_up", "every_frame")
Proposed = tuple[Path, str]


class Counted:
    """How often a screen is arranged, and how often something is sent to the terminal."""

    def __init__(self, app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.arranged = self.painted = 0
        compositor, display = app.screen._compositor, app._display
        reflow = compositor.reflow

        def arrange(*given: Any) -> Any:
            self.arranged += 1
            return reflow(*given)

        def paint(screen: Any, renderable: Any) -> None:
            self.painted += renderable is not None
            display(screen, renderable)

        monkeypatch.setattr(compositor, "reflow", arrange)
        monkeypatch.setattr(app, "_display", paint)


@pytest.mark.parametrize("size", [(300, 60), (160, 50), (120, 40)])
async def test_another_layout_is_arranged_and_painted_once(
    proposed: Proposed, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    """Also where lines become too long for their pane, or all fit."""
    async with Driver(proposed[1], size=size) as d:
        await d.press("z", "z", "2", "1")
        for key in ("z", "z", "4" if size[0] < 140 else "0"):
            shown = d.screen.grid._shown
            counted = Counted(d.app, monkeypatch)
            await d.press(key)
            assert d.screen.grid._shown != shown
            assert (counted.arranged, counted.painted) == (1, 1), key


async def test_following_an_op_paints_once_and_is_prepared(
    proposed: Proposed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows around the op are made before the key that shows them."""
    async with Driver(proposed[1], size=(300, 30)) as d:
        panes = [p for p in d.screen.grid.panes.values() if p.content.rows]
        leader = d.screen.grid.leader
        others = [p for p in panes if p is not leader]
        d.screen.follows = False
        rows = leader.content.rows
        for index in range(len(rows) - 1, 0, -1):
            if rows[index].key is None or rows[index].kind is RowKind.HEAD:
                continue
            leader.go_to(index)
            away = [p for p in others if p.linked is not None and p.centred(p.linked) is not None]
            if away:
                break
        while d.app.ahead._timer is not None:
            await d.pilot.pause(0.01)
        made: list[tuple[CodePane, int]] = []
        for pane in away:
            make = pane._strips._row

            def counting(index: int, flags: Any, make: Any = make, pane: Any = pane) -> Any:
                made.append((pane, index))
                return make(index, flags)

            monkeypatch.setattr(pane._strips, "_row", counting)
        counted = Counted(d.app, monkeypatch)
        tops = [p.scroll_offset.y for p in away]
        await d.press("f")
        assert [p.scroll_offset.y for p in away] != tops
        assert counted.painted == 1 and counted.arranged == 0
        seen = [i for p, i in made if 0 <= i - p.scroll_offset.y < p.size.height]
        assert len(seen) <= 2 * len(away), "rows in sight were made by the key"


async def test_where_a_search_goes_next_is_made_before_its_key(
    proposed: Proposed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the panes that follow too, with the marks that the rows have then."""
    async with Driver(proposed[1], size=(300, 30)) as d:
        panes = [p for p in d.screen.grid.panes.values() if p.content.rows]
        d.screen._search("gemm")
        await d.press("n")
        tops = [p.scroll_offset.y for p in panes]
        while d.app.ahead._timer is not None:
            await d.pilot.pause(0.01)
        made: list[tuple[CodePane, int]] = []
        for pane in panes:
            make = pane._strips._row

            def counting(index: int, flags: Any, make: Any = make, pane: Any = pane) -> Any:
                made.append((pane, index))
                return make(index, flags)

            monkeypatch.setattr(pane._strips, "_row", counting)
        await d.press("n")
        moved = [p for p, top in zip(panes, tops, strict=True) if p.scroll_offset.y != top]
        assert len(moved) > 1
        seen = [i for p, i in made if p in moved and 0 <= i - p.scroll_offset.y < p.size.height]
        assert len(seen) <= 2 * len(moved), "rows in sight were made by the key"


async def test_the_first_step_of_a_search_is_expected(proposed: Proposed) -> None:
    async with Driver(proposed[1], size=(160, 30)) as d:
        await d.press("/", *"gemm", "enter")
        leader = d.screen.grid.leader
        assert d.screen.words == "gemm"
        assert leader._expected is not None and leader._expected[0] == leader.match(1) is not None
