"""The collector's pauses are rare while keys come, and what was closed is given back after."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections import Counter
from itertools import pairwise

import pytest

from cubridge_tui.app import CuBridgeApp
from cubridge_tui.screens.dialogs import TextDialog
from cubridge_tui.steady import Tidy
from tests.cubridge_tui.conftest import settled


def test_it_waits_for_a_pause_and_collects_once() -> None:
    tidy = Tidy(20.0, 300.0)
    assert not tidy.look(100.0, busy=False)  # nothing was done yet
    tidy.touched(100.0)
    assert not tidy.look(119.0, busy=False)
    tidy.touched(119.5)
    assert not tidy.look(139.0, busy=False)
    assert tidy.look(140.0, busy=False)
    assert not tidy.look(500.0, busy=False)


def test_work_without_end_is_tidied_while_it_goes_on_and_after() -> None:
    tidy = Tidy(20.0, 300.0)
    seen = [now for now in range(0, 600, 10) if tidy.look(float(now), busy=True)]
    assert len(seen) > 15
    assert all(20 <= b - a <= 30 for a, b in pairwise(seen))
    assert tidy.look(700.0, busy=False)  # what the job's end has left
    assert not tidy.look(9999.0, busy=False)


@pytest.mark.parametrize("busy", [False, True])
def test_keys_without_a_long_pause_do_not_put_it_off_for_ever(busy: bool) -> None:
    tidy = Tidy(20.0, 300.0)
    collected = []
    for now in range(1000, 2000, 2):
        tidy.touched(float(now))
        assert not tidy.look(now + 0.5, busy), "never just after a key"
        if tidy.look(now + 1.5, busy):
            collected.append(now)
    assert collected[0] == 1300 and len(collected) == 3


@pytest.mark.usefixtures("no_warm_up")
async def test_a_closed_screen_is_given_back_though_the_collector_hardly_looks() -> None:
    before = gc.get_threshold()
    app = CuBridgeApp()
    try:
        gc.set_threshold(100_000_000)
        async with app.run_test(size=(80, 24)) as pilot:
            await settled(app, pilot)
            dialog = TextDialog("a text", [f"line {i}" for i in range(500)])
            gone = weakref.ref(dialog)
            app.push_screen(dialog)
            del dialog
            await pilot.pause()
            await pilot.press("escape")
            await settled(app, pilot)
            assert app._tidy.look(1e12, busy=False)  # keys were pressed, some time ago
            assert gone() is None
            held = Counter(type(o).__name__ for o in gc.get_objects())
            for _ in range(3):
                app.push_screen(TextDialog("a text", [f"line {i}" for i in range(500)]))
                await pilot.pause()
                await pilot.press("pagedown", "escape")
                await settled(app, pilot)
            assert app._tidy.look(2e12, busy=False)
            after = Counter(type(o).__name__ for o in gc.get_objects())
            for name in ("StylesCache", "TextDialog", "CodePane"):
                assert after[name] <= held[name], f"{name}: its screen is gone"
    finally:
        gc.set_threshold(*before)
        app.close()


def test_no_full_collection_comes_while_rows_are_painted() -> None:
    """A hundred pages of rows in a process that runs as the app does."""
    code = """
import gc
from cubridge_tui.model.rows import PaneText, plain_rows
from cubridge_tui.steady import steady
from cubridge_tui.themes import load_themes
from cubridge_tui.widgets.paint import Flags
from cubridge_tui.widgets.row_strips import Look, RowStrips
from rich.style import Style
loaded = len(gc.get_objects())
steady()
walked = len(gc.get_objects())
assert walked * 20 < loaded, "a full collection walks all modules: {} {}".format(walked, loaded)
strips = RowStrips()
strips.show(PaneText(plain_rows(["float x = y[0] + 1.0f;  // text"] * 8000), "cuda"))
strips.use(Look(load_themes()[0][0], Style(), width=74))
seen = []
gc.callbacks.append(lambda phase, info: seen.append(info["generation"]))
for index in range(8000):
    strips.strip(index, Flags())
assert set(seen) <= {0}, seen
print(len(seen))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 400  # a young collection at some pages, not at every row
