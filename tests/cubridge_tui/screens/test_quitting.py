"""Quitting waits for what a person asked to be kept, or asks: nothing of it is lost unsaid."""

from __future__ import annotations

import asyncio
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from cubridge_tui import actions
from cubridge_tui.app import CuBridgeApp
from cubridge_tui.desk import Desk
from cubridge_tui.screens.commit import CommitScreen
from cubridge_tui.screens.dialogs import Confirm
from engine.errors import StoreError
from sessions.events import Committed
from sessions.store import Store
from tests.cubridge_tui.conftest import screen_text, settled
from tests.cubridge_tui.made import placed
from tests.cubridge_tui.screens.opening import open_screen

pytestmark = pytest.mark.usefixtures("no_warm_up")


class Slow:
    """Work that begins and goes on until it is let go."""

    def __init__(self, work: Any) -> None:
        self.work, self.begun, self.go = work, threading.Event(), threading.Event()

    def __call__(self, *given: Any) -> Any:
        self.begun.set()
        assert self.go.wait(60)
        return self.work(*given)


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    path = tmp_path / "store.git"
    monkeypatch.setenv("CUBRIDGE_STORE", str(path))
    return placed(path)


def slow_accept(monkeypatch: pytest.MonkeyPatch, work: Any) -> Slow:
    slow = Slow(work)
    monkeypatch.setattr(Desk, "accept", lambda desk: slow(desk))
    return slow


async def accepting(app: CuBridgeApp, pilot: Any, session: str, slow: Slow, *keys: str) -> None:
    """The accept screen; A, and while it is under way the keys."""
    await open_screen(app, pilot, actions.ACCEPT, session)
    await pilot.press("A")
    await pilot.pause()
    assert slow.begun.wait(60)
    for key in keys:
        await pilot.press(key)
    await pilot.pause()


async def quitted(app: CuBridgeApp) -> int | None:
    """The app's exit code, once it quits."""
    deadline = time.monotonic() + 60
    while app.return_code is None and time.monotonic() < deadline:
        await asyncio.sleep(0.02)
    return app.return_code


@pytest.mark.parametrize("keys", [("q",), ("ctrl+q",), ("escape", "q"), ("escape", "B", "q")])
async def test_quitting_waits_for_what_is_being_accepted(
    keys: tuple[str, ...], session: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = slow_accept(monkeypatch, Desk.accept)
    app = CuBridgeApp()
    async with app.run_test(size=(120, 40)) as pilot:
        await accepting(app, pilot, session, slow, *keys)
        assert isinstance(app.screen, Confirm) and app.is_running
        assert "“accept” is under way: CuBridge quits once it is done" in screen_text(app)
        slow.go.set()
        assert await quitted(app) == 0
    app.close()
    assert Store.open(tmp_path / "store.git").load(session).state.acceptance_is_current


async def test_what_does_not_work_is_read_and_not_quit_over(
    session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(desk: Desk) -> None:
        raise StoreError("it cannot be accepted now")

    slow = slow_accept(monkeypatch, refuses)
    app = CuBridgeApp()
    async with app.run_test(size=(120, 40)) as pilot:
        await accepting(app, pilot, session, slow, "q")
        slow.go.set()
        await settled(app, pilot)
        assert app.return_code is None
        assert "it cannot be accepted now" in screen_text(app)
    app.close()


@pytest.mark.parametrize("key", ["y", "n"])
async def test_the_person_decides_whether_to_wait(
    key: str, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cubridge_tui.screens.dialogs.GRACE", 0.0)
    slow = slow_accept(monkeypatch, Desk.accept)
    app = CuBridgeApp()
    async with app.run_test(size=(120, 40)) as pilot:
        await accepting(app, pilot, session, slow, "q", key)
        if key == "y":
            assert await quitted(app) == 0
        slow.go.set()
        if key == "n":
            await settled(app, pilot)
            assert app.return_code is None
    app.close()


async def test_leaving_while_it_is_accepted_says_so_and_what_came_of_it(
    session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = slow_accept(monkeypatch, Desk.accept)
    app = CuBridgeApp()
    async with app.run_test(size=(120, 40)) as pilot:
        await accepting(app, pilot, session, slow, "escape")
        assert "accept: under way" in screen_text(app)
        slow.go.set()
        await settled(app, pilot)
        assert "accepted" in screen_text(app).splitlines()[-2]
    app.close()


@pytest.mark.parametrize("keys", [("ctrl+q",), ("escape", "q")])
async def test_a_commit_says_that_it_runs_and_is_waited_for_and_recorded(
    keys: tuple[str, ...], session: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(lambda plan: "0123abc")
    monkeypatch.setattr("cubridge_tui.screens.commit.carry_out", slow)
    mine = tmp_path / "mine"
    for words in (["init", "-q"], ["config", "user.name", "a"], ["config", "user.email", "a@b.c"]):
        mine.mkdir(exist_ok=True)
        subprocess.run(["git", *words], cwd=mine, check=True)
    store = Store.open(tmp_path / "store.git")
    app = CuBridgeApp()
    async with app.run_test(size=(120, 40)) as pilot:
        await open_screen(app, pilot, actions.ACCEPT, session)
        await pilot.press("A")
        await settled(app, pilot)
        app.screen.dismiss(None)
        await settled(app, pilot)
        screen = CommitScreen(app.screen, mine / "kernel")  # type: ignore[arg-type]
        app.push_screen(screen)
        await settled(app, pilot)
        assert "commits exactly this" in screen_text(app)
        await pilot.press("C")
        await pilot.pause()
        assert slow.begun.wait(60)
        assert "committing: git and your hooks run" in screen_text(app)
        assert "commits exactly this" not in screen_text(app)
        for key in keys:
            await pilot.press(key)
            await pilot.pause()
        assert "“commit” is under way" in screen_text(app) and app.return_code is None
        slow.go.set()
        assert await quitted(app) == 0
    app.close()
    events = store.load(session).events
    assert [e.body.commit for e in events if isinstance(e.body, Committed)] == ["0123abc"]
