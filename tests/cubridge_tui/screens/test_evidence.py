"""Replay, mask and GPU screens through Textual's pilot, notifications and tooltips on."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Input

from cubridge_tui.app import CuBridgeApp
from cubridge_tui.screens.adaptation import AdaptationScreen
from cubridge_tui.screens.dialogs import Confirm
from cubridge_tui.screens.gpu import GpuScreen
from cubridge_tui.screens.mask import MaskScreen
from cubridge_tui.screens.replay import ReplayScreen
from cubridge_tui.widgets.line import Line
from engine.types import Level, Stage, VerdictKind
from sessions.store import Store
from tests.cubridge_tui.conftest import screen_text, settled
from tests.cubridge_tui.made import TableChild, made, placed
from tests.engine.transfer.recipes import VARIANTS

pytestmark = pytest.mark.usefixtures("no_warm_up")


@asynccontextmanager
async def app_on(
    store: Path, session: str | None = None, size: tuple[int, int] = (150, 40)
) -> AsyncIterator[tuple[CuBridgeApp, Any]]:
    app = CuBridgeApp(str(store), session=session)
    app.bench.child = TableChild(VARIANTS["softcap_causal"])  # type: ignore[assignment]
    try:
        async with app.run_test(size=size, notifications=True, tooltips=True) as pilot:
            await settled(app, pilot)
            yield app, pilot
    finally:
        app.close()


async def press(app: CuBridgeApp, pilot: Any, *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        while app.jobs.busy:
            await asyncio.sleep(0.01)
    await pilot.pause()


async def typed(app: CuBridgeApp, pilot: Any, text: str) -> None:
    """Fill the prompt that is shown, and answer it."""
    app.screen.query_one(Input).value = text
    await press(app, pilot, "enter")


def status(app: CuBridgeApp) -> str:
    return app.screen.query_one("#status", Line).text


# --- replay ----------------------------------------------------------------------------------


async def test_a_session_plays_and_a_step_becomes_a_new_session(tmp_path: Path) -> None:
    path = tmp_path / "store.git"
    session = placed(path)
    store = Store.open(path)
    before = store.load(session).commit
    async with app_on(path) as (app, pilot):
        await press(app, pilot, "p")
        screen = app.screen
        assert isinstance(screen, ReplayScreen)
        assert "REPLAY" in screen_text(app) and "read-only" in screen_text(app)
        deck = screen.deck
        await press(app, pilot, "s", "s", "b")
        assert deck.position == 1
        await press(app, pilot, "b", "right_curly_bracket")
        assert deck.tape.stage_at(deck.position) is Stage.LIFTED
        await press(app, pilot, "right_square_bracket")
        assert deck.tape.steps[deck.position].event.type == "HunkDecided"
        await press(app, pilot, "1")
        assert "flash_fwd" in screen_text(app) and "source after step" in screen_text(app)
        await press(app, pilot, "end", "0")
        assert deck.position == deck.tape.last
        # Playing from the end begins again, and stops by itself.
        for _ in range(6):
            await press(app, pilot, "plus")
        await press(app, pilot, "space")
        for _ in range(200):
            await asyncio.sleep(0.02)
            if deck.position == deck.tape.last and screen._timer is None:
                break
        assert screen._timer is None and deck.position == deck.tape.last
        await press(app, pilot, "left_square_bracket")
        at = deck.tape.steps[deck.position]  # with all that was done at one stroke
        for answer in ("n", "y"):  # what is made stays: nothing is without asking
            await press(app, pilot, "c")
            assert isinstance(app.screen, Confirm)
            assert f"{session} up to step {at.number}?" in screen_text(app)
            app.screen._asked -= 1  # it was read
            assert len(store.sessions()) == 1
            await press(app, pilot, answer)
        assert isinstance(app.screen, AdaptationScreen)
        new = app.screen.session
        assert new != session
    forked = store.load(new)
    assert forked.state.forked_from is not None and forked.state.forked_from.session == session
    assert at.event.id in {e.id for e in forked.events}
    assert forked.state.decision("rules", "h1") is not None
    assert store.load(session).commit == before


async def test_replay_of_what_is_gone_says_so(tmp_path: Path) -> None:
    path = tmp_path / "store.git"
    placed(path, Stage.SOURCE)
    async with app_on(path) as (app, pilot):
        app.open_replay("no-such-session")
        await settled(app, pilot)
        assert "no session" in screen_text(app)
        await press(app, pilot, "s", "b", "space", "right_square_bracket", "c")
        assert app.is_running


# --- mask ------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(80, 24), (150, 40)])
async def test_the_mask_shows_the_failing_rows_of_a_failed_gate(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    path = tmp_path / "store.git"
    failure = {
        "reason": "the keep set differs",
        "details": {
            "runs": [{"case": "B 1, heads 2/1, Nq 70, Nk 33"}],
            "counterexample": {"b": 0, "h": 1, "i": 41, "j": 4, "expected": True, "got": False},
        },
    }
    session = made(Store.open(path), Stage.TARGET, failure=failure)
    async with app_on(path, session, size) as (app, pilot):
        await press(app, pilot, "m")
        screen = app.screen
        assert isinstance(screen, MaskScreen)
        grid = screen.pane.grid
        assert grid is not None and (grid.queries, grid.keys) == (70, 33)
        assert (screen.pane.i, screen.pane.j, screen.h) == (41, 4, 1)
        while not grid.done:
            await pilot.pause(0.02)
        # The target that the rules wrote is right: the verdict was made up, the picture is not.
        assert not grid.wrong and "no row fails" not in status(app)
        assert "the keep set differs" in status(app)
        await press(app, pilot, "n")
        assert "no row fails" in status(app)
        text = screen_text(app)
        assert "▓" in text and "i=41 j=4" in text
        screen.pane.go_to(0, 0)
        await pilot.pause()
        assert "∅│" in screen_text(app)
        await press(app, pilot, "v")
        assert screen.pane.by_tiles and "·" in screen_text(app)
        await press(app, pilot, "s", "H", "b", "v", "G", "end", "home", "k", "l")
        assert "Nq" in screen_text(app)
        await press(app, pilot, "S")
        await typed(app, pilot, "9 x")
        assert "two whole numbers" in screen_text(app)
        await typed(app, pilot, "9 8")
        assert "Nq 9, Nk 8" in screen_text(app)
        await press(app, pilot, "escape")
        assert isinstance(app.screen, AdaptationScreen)


# --- GPU -------------------------------------------------------------------------------------


async def test_gpu_results_stand_beside_their_device(tmp_path: Path) -> None:
    path = tmp_path / "store.git"
    session = placed(path, Stage.VERIFIED)
    async with app_on(path, session) as (app, pilot):
        await press(app, pilot, "v")
        assert isinstance(app.screen, GpuScreen)
        text = screen_text(app)
        assert "│" not in text.split("\n")[0]  # the bar: nothing is predicted here
        assert "H100" in text and "TFLOP/s" in text and "█" in text and "▒" in text
        assert "␛[2J" in text and "eager [/] b[0]" in text
        await press(app, pilot, "x", "enter")
        written = tmp_path / f"{session}-times.svg"
        assert written.read_text().startswith("<svg")
        await press(app, pilot, "x", "enter")
        assert "not written" in status(app)


async def test_a_runner_that_cannot_work_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.gpu.runners.has_gpu", lambda: False)
    path = tmp_path / "store.git"
    session = placed(path)
    async with app_on(path, session) as (app, pilot):
        await press(app, pilot, "v", "r")
        assert "no NVIDIA GPU" in status(app)
        await press(app, pilot, "j", "r")
        assert "needs a host" in status(app)
        await press(app, pilot, "j", "r")
        assert "needs a command" in status(app)
        await press(app, pilot, "j", "e")
        await typed(app, pilot, "127.0.0.1:1")
        assert "127.0.0.1:1" in screen_text(app)
        monkeypatch.setattr("engine.gpu.ray_runner.find_spec", lambda name: None)
        await press(app, pilot, "r")
        assert "needs Ray" in status(app)
        await press(app, pilot, "i")
        await press(app, pilot, "enter")
        assert "result.json" in status(app) and "cannot be read" in status(app)
        await press(app, pilot, "p")
        await press(app, pilot, "enter")
        assert "packed" in status(app) and "/run.py --out result.json" in status(app)
        assert list(tmp_path.glob("*.tar"))


MACHINE = """
import json, pathlib, sys
sys.path.insert(0, {root!r})
from engine.worker.orchestration.checklist import explained, required
from engine.worker.orchestration.manifest import read_job
from engine.worker.orchestration.results import Store, write_result
job, out = read_job(pathlib.Path(sys.argv[1])), pathlib.Path(sys.argv[2])
print("on the card [/]", flush=True)
store = Store(job, {{"name": "Test Card [/]", "arch": "sm_80"}}, fresh=True)
for key in job.keys:
    for check in (*required(key, job.primary, True), *explained(key, job.primary)):
        store.add("checks", {{"check": check, "specialisation": key, "verdict": "pass",
                             "cases": 3, "seconds": 0.5}})
write_result(out, store.result("complete"))
"""


async def test_a_job_runs_by_a_command_and_its_result_becomes_the_verdict(
    tmp_path: Path, root: Path
) -> None:
    """The command stands for a GPU machine: it writes a whole result for the job's own bytes."""
    path = tmp_path / "store.git"
    session = placed(path)
    machine, broken = tmp_path / "machine.py", tmp_path / "broken.py"
    machine.write_text(MACHINE.format(root=str(root)))
    broken.write_text("import sys; open(sys.argv[2], 'w').write('{}')")
    async with app_on(path, session) as (app, pilot):
        await press(app, pilot, "v", "j", "j", "e")
        await typed(app, pilot, f"{sys.executable} {broken} {{job}} {{out}}")
        await press(app, pilot, "r")
        # What is no result is refused, and the session has no new verdict.
        assert "not a GPU result" in status(app)
        screen = app.screen
        assert isinstance(screen, GpuScreen) and screen.verdict is None
        await press(app, pilot, "e")
        await typed(app, pilot, f"{sys.executable} {machine} {{job}} {{out}}")
        await press(app, pilot, "r")
        assert screen.verdict is not None and screen.verdict.kind is VerdictKind.PASS, status(app)
        assert "measured on Test Card [/], sm_80" in screen_text(app)
        assert "gpu-verified" in screen_text(app)
        assert any("on the card [/]" in line for line in app.jobs.log)
    assert Store.open(path).load(session).state.level is Level.GPU_VERIFIED


async def test_a_running_job_is_cancelled_at_once(tmp_path: Path) -> None:
    path = tmp_path / "store.git"
    session = placed(path)
    async with app_on(path, session) as (app, pilot):
        await press(app, pilot, "v", "j", "j", "e")
        script = tmp_path / "wait.py"
        script.write_text("import time; time.sleep(60)")
        await typed(app, pilot, f"python3 {script} {{job}}")
        await pilot.press("r")
        deadline = time.monotonic() + 20
        while "running" not in app.jobs.line and time.monotonic() < deadline:
            await pilot.pause(0.05)
        begin = time.monotonic()
        await pilot.press("ctrl+c")
        await settled(app, pilot)
        assert time.monotonic() - begin < 5
        assert "cancelled" in status(app)
