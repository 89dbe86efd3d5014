"""Hostile text in every place where text is shown: visible as it is, never obeyed, never markup."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Input

from cubridge_tui.app import CuBridgeApp
from cubridge_tui.model.rows import PaneText, plain_rows
from cubridge_tui.screens.dialogs import Confirm, Prompt, TextDialog
from cubridge_tui.text.cells import split_lines
from cubridge_tui.text.sanitise import visible
from cubridge_tui.widgets.code_pane import CodePane
from engine.service.session.adaptation import start
from engine.service.session.session_options import choose_options
from engine.service.session.workbench import find_kernel
from sessions.store import Store
from tests.cubridge_tui.conftest import screen_text, settled
from tests.cubridge_tui.made import TableChild, bench_of
from tests.cubridge_tui.survival.hostile import ALL, BRACKETS, ESCAPES, UNICODE, unsafe
from tests.engine.transfer.recipes import VARIANTS

pytestmark = pytest.mark.usefixtures("no_warm_up")
TITLE = "smem[threadIdx.x][/ 2] [/] \x1b]52;c;aGk=\x07 \u202e a[0]"


async def press(app: CuBridgeApp, pilot: Any, *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        while app.jobs.busy:
            await asyncio.sleep(0.01)
        await pilot.pause()
        assert not unsafe(screen_text(app)), f"after {key}"


def hostile_session(store: Path, folder: Path) -> str:
    """A session whose title, spec file, comments and texts are hostile."""
    place = folder / "a [/] folder\x1b[2J"
    place.mkdir(parents=True)
    spec = place / "-b[0] [bold]\n.py"
    spec.write_text("# " + "\n# ".join(BRACKETS) + "\ndef attention(q, k, v): ...\n")
    opened = Store.open(store)
    with bench_of(opened) as bench:
        package = find_kernel("flash_fwd_sm80")
        options = choose_options(package)
        return start(bench, package, spec, options, "who\x1b[31m [/]", TITLE)


async def test_every_screen_shows_a_hostile_session(tmp_path: Path) -> None:
    path = tmp_path / "store.git"
    session = hostile_session(path, tmp_path)
    app = CuBridgeApp(str(path))
    reason = "expected [/] \x1b[2J a[i]\x07"
    failure = {"reason": reason, "details": {"counterexample": {"b": 0, "h": 0, "i": 1, "j": 2}}}
    app.bench.child = TableChild(VARIANTS["softcap_causal"], failure)  # type: ignore[assignment]
    async with app.run_test(size=(150, 40), notifications=True, tooltips=True) as pilot:
        await settled(app, pilot)
        assert "smem[threadIdx.x][/ 2] [/]" in screen_text(app)
        app.open_session(session)
        await settled(app, pilot)
        await press(app, pilot, "s", "s", "r", "escape", "A")
        await asyncio.sleep(0.2)
        await press(app, pilot, "A", "s", "w", "escape", "L", "escape", "question_mark", "escape")
        await press(app, pilot, "m", "escape", "i", "escape", "ctrl+p", "escape", "d", "d", "z")
        await press(app, pilot, "B", "p", "s", "end", "escape")
        assert "smem[threadIdx.x][/ 2] [/]" in screen_text(app)
        assert app.is_running
    app.close()


async def test_every_widget_of_ours_takes_any_text() -> None:
    app = CuBridgeApp()
    async with app.run_test(size=(100, 30), notifications=True, tooltips=True) as pilot:
        await pilot.pause()
        screen = app.action_screen
        assert screen is not None
        app.push_screen(TextDialog(TITLE, ALL))
        await pilot.pause()
        assert not unsafe(screen_text(app))
        assert all(visible(text) in screen_text(app) for text in BRACKETS)
        app.pop_screen()
        for text in (*BRACKETS[:4], *ESCAPES[:2], *UNICODE[:2]):
            screen.say(text, "fail")
            app.push_screen(Prompt(text, text.replace("\n", " "), lambda t: t))
            await pilot.pause()
            await pilot.press("enter")
            assert not unsafe(screen_text(app))
            app.pop_screen()
            app.push_screen(Confirm(text))
            await pilot.pause()
            shown = screen_text(app)
            assert not unsafe(shown)
            if text in BRACKETS:
                assert visible(text) in shown
            app.pop_screen()
        assert app.is_running
    app.close()


async def test_a_pane_shows_every_character_and_copies_the_bytes() -> None:
    """What is copied is what the file holds; line ends of others never split a line."""
    data = "\n".join(ALL) + "\r\nlast without newline"
    lines = split_lines(data)
    assert "\n".join(lines) == data
    app = CuBridgeApp()
    async with app.run_test(size=(100, 60)) as pilot:
        pane = CodePane()
        app.screen.mount(pane)
        await pilot.pause()
        pane.show(PaneText(plain_rows(lines), "cuda", "t"))
        for index, line in enumerate(lines):
            pane.go_to(index)
            assert pane.copied() == line
        assert not unsafe("".join(pane.render_line(y).text for y in range(pane.size.height)))
    app.close()


@pytest.mark.parametrize("data", ["", "\n", "\r\n\r\n", "\r", "no end", "\ufeffBOM\n", "\x00\n"])
async def test_odd_files_have_their_lines(data: str) -> None:
    lines = split_lines(data)
    assert len(lines) == data.count("\n") + (not data.endswith("\n") and data != "")
    app = CuBridgeApp()
    async with app.run_test(size=(80, 24)) as pilot:
        app.push_screen(TextDialog("t", lines, "cuda"))
        await pilot.press("end", "home", "pagedown", "l", "G")
        assert app.is_running
    app.close()


async def test_a_huge_paste_is_bounded() -> None:
    import time

    from textual import events

    from cubridge_tui.screens.dialogs import LONGEST_INPUT
    from cubridge_tui.screens.hunk_editor import HunkEditor
    from engine.types import Hunk, Origin

    app = CuBridgeApp()
    huge = "x = [/] y;\n" * 500_000
    async with app.run_test(size=(100, 30)) as pilot:
        app.push_screen(Prompt("title"))
        await pilot.pause()
        field = app.screen.query_one(Input)
        for text in (huge, huge.replace("\n", " ")):
            begin = time.process_time()
            field.post_message(events.Paste(text))
            await pilot.pause()
            assert time.process_time() - begin < 1.0
            assert len(field.value) <= LONGEST_INPUT
        app.pop_screen()
        hunk = Hunk("h1", "t", "r", "", "a", "b", (), Origin.RULES)
        app.push_screen(HunkEditor(hunk, "b"))
        await pilot.pause()
        assert app.focused is not None
        begin = time.process_time()
        app.focused.post_message(events.Paste(huge))
        await pilot.pause()
        assert time.process_time() - begin < 1.0
        assert "was refused" in screen_text(app)
    app.close()
