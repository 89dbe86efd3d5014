"""What a screen started may end after the screen: nothing of it ends the app."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from textual.timer import Timer

from cubridge_tui import actions
from cubridge_tui.app import CuBridgeApp
from cubridge_tui.jobs import Jobs, Outcome
from cubridge_tui.screens.closing import ClosingScreen
from cubridge_tui.screens.commit import CommitScreen
from cubridge_tui.screens.dialogs import Confirm
from engine.errors import CuBridgeError
from tests.cubridge_tui.conftest import screen_text, settled
from tests.cubridge_tui.made import placed
from tests.cubridge_tui.screens.opening import COMMIT, OPENS

pytestmark = pytest.mark.usefixtures("no_warm_up")
# What a screen starts that is still to end when the screen is gone.
STARTS: dict[str, tuple[str, ...]] = {
    actions.ADAPTATION: ("_look", "do_fork"),
    actions.HUNKS: ("do_hunks_undo",),
    actions.ACCEPT: ("do_confirm",),
    COMMIT: ("action_commit",),
    actions.REPLAY: ("do_replay_play", "do_replay_fork"),
    actions.MASK: ("draw",),
    actions.COST: (),
    actions.GPU: (),
    actions.MODEL: ("_watch",),
}


def test_every_screen_that_can_close_is_looked_at() -> None:
    assert set(OPENS) == set(STARTS)
    assert set(OPENS) - {COMMIT} == set(actions.SCREENS) - {actions.EVERYWHERE, actions.START}


@pytest.mark.parametrize("name", OPENS)
async def test_timers_and_jobs_that_end_after_their_screen_do_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.git"
    monkeypatch.setenv("CUBRIDGE_STORE", str(path))
    monkeypatch.setattr("engine.gpu.runners.has_gpu", lambda: False)
    session = placed(path)
    ends: list[tuple[Any, Outcome]] = []
    calls: list[Callable[[], Any]] = []
    finish, timer = Jobs._finish, Timer.__init__

    def finished(jobs: Jobs, job: Any, outcome: Outcome) -> None:
        ends.append((job, outcome))
        finish(jobs, job, outcome)

    def timed(made: Timer, target: Any, *args: Any, **more: Any) -> None:
        timer(made, target, *args, **more)
        call: Any = made._callback
        if isinstance(target, ClosingScreen) and call is not None:
            # Textual has a screen call it once it has handled a message: that may be its last.
            calls.append(call.args[0] if isinstance(call, partial) else call)

    monkeypatch.setattr(Jobs, "_finish", finished)
    monkeypatch.setattr(Timer, "__init__", timed)
    app = CuBridgeApp()
    async with app.run_test(size=(120, 40)) as pilot:
        app.open_session(session)
        await settled(app, pilot)
        below = len(app.screen_stack)
        ends.clear()
        calls.clear()
        OPENS[name](app, session)
        await settled(app, pilot)
        screen = app.screen_stack[below]
        assert isinstance(screen, ClosingScreen)
        for method in STARTS[name]:
            getattr(screen, method)()
        if isinstance(app.screen, Confirm):  # what it asks for begins, too
            asked = app.screen._result_callbacks[-1].callback
            assert asked is not None
            asked(True)
            assert app.jobs.busy
        while len(app.screen_stack) > below:
            app.pop_screen()
        await settled(app, pilot)
        assert not screen.is_attached
        for method in STARTS[name]:  # as a message that was still in its queue does
            if method.startswith("_"):
                getattr(screen, method)()
        stack = list(app.screen_stack)
        for call in calls:
            call()
        for job, outcome in ends:
            for end in (
                outcome,
                Outcome(job.name, cancelled=True),
                Outcome(job.name, error=CuBridgeError("it did not work", fix="nothing")),
            ):
                job.done(end)
        if isinstance(screen, CommitScreen):  # git was still running when the person left
            screen._committed(Outcome(COMMIT, "0123abc"))
            assert "committed as 0123abc" in screen_text(app)
        await settled(app, pilot)
        assert app._exception is None and app.is_running
        assert calls or ends
        # No screen but a session that was asked for opens or closes by it.
        assert app.screen_stack[: len(stack)] == stack
    app.close()
