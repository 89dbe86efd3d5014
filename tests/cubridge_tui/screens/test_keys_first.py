"""What nobody waits for lets a key pass that waits for its repaint: news of a job, rows that may be
seen next, the collector; and the repaint itself waits for no frame."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from pathlib import Path
from typing import Any

import pytest

from cubridge_tui.steady import YOUNG, Keys
from cubridge_tui.widgets.code_pane import CodePane
from cubridge_tui.widgets.line import Line
from tests.cubridge_tui.screens.test_adaptation import Driver

pytestmark = pytest.mark.usefixtures("no_warm_up")
Proposed = tuple[Path, str]
HOUR = 3600.0


def test_a_key_waits_until_it_is_painted_and_for_no_longer_than_it_may() -> None:
    keys = Keys()
    assert keys.wait(5.0) == keys.rest(5.0) == 0.0 and not keys.painted()
    keys.touched(10.0)
    assert keys.wait(10.01) == keys.rest(10.01) == pytest.approx(Keys.LONGEST - 0.01)
    assert keys.wait(11.0) == 0.0, "it paints nothing"
    assert keys.painted() and not keys.painted()
    assert keys.wait(10.01) == 0.0 < keys.rest(10.01), "another repaint may follow"


async def test_news_of_a_job_let_a_key_pass_and_are_not_lost(
    proposed: Proposed, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Driver(proposed[1]) as d:
        jobs, decision = d.app.jobs, d.screen.query_one("#decision", Line)
        jobs.running, jobs.since = "a gate", time.monotonic()
        monkeypatch.setattr(Keys, "LONGEST", HOUR)
        d.app.keys.touched(time.monotonic())
        for count in range(3):
            jobs._line = f"step {count}"
            d.app._job_news()
        assert "step" not in decision.text
        d.app._tell_held()  # as its timer does
        assert "step 2" in decision.text
        jobs._line = "step 3"
        d.app._job_news()
        assert "step 3" not in decision.text
        jobs.running = ""
        d.app._job_news()
        assert "Next:" in decision.text, "the end of a job is told at once"


async def test_a_key_is_painted_without_waiting_for_a_frame(
    proposed: Proposed, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Driver(proposed[1]) as d:
        monkeypatch.setattr(d.screen._update_timer, "resume", lambda: None)  # none comes
        monkeypatch.setattr(Keys, "LONGEST", HOUR)
        leader = d.screen.grid.leader
        before = leader.cursor
        await d.press("j")
        assert leader.cursor == before + 1
        async with asyncio.timeout(60):
            while d.screen._dirty_widgets:
                await asyncio.sleep(0.01)
        assert d.app.keys.wait(time.monotonic()) == 0.0


async def test_rows_that_may_be_seen_next_are_made_after_the_repaint(
    proposed: Proposed, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Driver(proposed[1], size=(160, 30)) as d:
        pane, ahead = d.screen.grid.leader, d.app.ahead
        made: list[int] = []
        strip = pane._row_strip
        monkeypatch.setattr(Keys, "LONGEST", HOUR)

        def counted(index: int, links: Any) -> Any:
            made.append(index)
            return strip(index, links)

        monkeypatch.setattr(pane, "_row_strip", counted)
        async with asyncio.timeout(60):
            while pane.waits_for_paint:
                await d.pilot.pause(0.01)
        ahead._left.clear()  # of the other panes
        d.app.keys.touched(time.monotonic())
        ahead.soon(pane)
        ahead.read()
        assert not made and ahead._timer is not None, "a key waits"
        d.app.keys.painted()  # by something else: the key has yet to move this pane
        pane._repaint_required = True
        ahead.read()
        assert not made, "the pane waits for its own repaint"
        pane._repaint_required = False
        ahead.read()
        assert made


async def test_panes_take_turns_between_two_turns_of_the_loop(
    proposed: Proposed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One slice in all, not one for each pane: a key that comes waits for no more."""
    async with Driver(proposed[1], size=(160, 30)) as d:
        slices: list[str | None] = []

        def begun(pane: CodePane, _coming: object, _until: float) -> bool:
            slices.append(pane.id)
            return False

        d.app.ahead._left.clear()
        monkeypatch.setattr(CodePane, "make", begun)
        monkeypatch.setattr(CodePane, "waits_for_paint", False)
        monkeypatch.setattr(d.app, "set_timer", lambda *_: None)
        panes = [p for p in d.screen.grid.panes.values() if p.display][:2]
        for pane in panes:
            d.app.ahead.soon(pane)
        for count in range(1, 5):
            d.app.ahead.read()
            assert len(slices) == count
        assert slices == [p.id for p in panes] * 2
        assert isinstance(d.app.ahead._timer, asyncio.Handle), "the next turn goes on, unpaused"
        d.app.ahead._left.clear()


async def test_what_keys_leave_in_cycles_is_collected_after_them(
    proposed: Proposed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the collector would not come by itself."""

    class Left:
        pass

    async with Driver(proposed[1]) as d:
        before = gc.get_threshold()
        gc.set_threshold(100_000_000)
        try:
            gc.collect(0)
            left: Any = Left()
            left.itself = left
            gone = weakref.ref(left)
            del left
            more = [[i] for i in range(2 * YOUNG)]
            await d.press("j")
            async with asyncio.timeout(60):
                while gone() is not None:
                    await asyncio.sleep(0.01)
            assert len(more) == 2 * YOUNG
        finally:
            gc.set_threshold(*before)
