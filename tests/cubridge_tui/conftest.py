"""What the tests of the app share: places of their own, and a store with a proposal in it."""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import textual._wait
from textual._compositor import Compositor, visible_screen_stack
from textual.pilot import Pilot

from engine.gates.outcome import Found
from engine.service.session.adaptation import Adaptation, start
from engine.service.session.session_options import choose_options
from engine.service.session.workbench import Bench, find_kernel, find_spec
from engine.types import Gate
from sessions.store import Store

# A key of a pilot, and a pause, wait until the process was idle for this long, twice 20 ms in
# Textual: most of what a test of a screen took.
textual._wait.SLEEP_GRANULARITY = 0.01


@pytest.fixture(autouse=True)
def _own_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test reads or writes the person's config, state or clipboard files."""
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        folder = tmp_path / name.lower()
        folder.mkdir()
        monkeypatch.setenv(name, str(folder))
    for name in ("NO_COLOR", "CUBRIDGE_THEME", "EDITOR", "VISUAL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def proposed_store(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A store whose one session has a lifted kernel and the rules' real proposal, undecided.

    G1's verdict is written down by the fixture: these tests are about the app, not the gate.
    """
    pytest.importorskip("torch")
    path = tmp_path_factory.mktemp("proposed") / "store.git"
    with Bench(Store.open(path)) as bench:
        package = find_kernel("flash_fwd_sm80")
        options = choose_options(package)
        session = start(bench, package, find_spec("softcap_causal"), options, "tester")
        with bench.store.writer(session) as writer:
            work = Adaptation(bench, writer, "tester")
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Adaptation, "judge_lifted", lambda self: None)
                work.lift()
            begin = time.monotonic()
            work.give(work.found(Gate.G1, begin, Found(True, "as the fixture says")))
            work.propose_by_rules()
    return path, session


@pytest.fixture
def proposed(
    proposed_store: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, str]:
    """A copy of that store, the app's own for one test."""
    path = tmp_path / "store.git"
    shutil.copytree(proposed_store[0], path)
    monkeypatch.setenv("CUBRIDGE_STORE", str(path))
    return path, proposed_store[1]


async def settled(app: Any, pilot: Any, seconds: float = 60.0) -> None:
    """Wait until the app has done what it was asked to: no job at three looks, then idle."""
    deadline = time.monotonic() + seconds
    quiet = 0
    while quiet < 3:
        if app.jobs.busy:  # a pause asks every widget: beside a job, half of a processor's time
            await asyncio.sleep(0.02)
        else:
            await pilot.pause(None if quiet == 2 else 0.01)
        quiet = 0 if app.jobs.busy else quiet + 1
        assert time.monotonic() < deadline, f"still busy: {app.jobs.running} {app.jobs.line}"


def screen_text(app: Any) -> str:
    """The screen as a person reads it."""
    strips = app.screen._compositor.render_strips(app.size)
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)


@pytest.fixture
def every_frame() -> None:
    """The test is of what is painted when."""


@pytest.fixture(autouse=True)
def _painted_at_rest(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """One frame where a test waits until the app rests: nobody sees those of an app without a
    terminal, and to paint each change took half of what a test of a screen did."""
    if "every_frame" in request.fixturenames:
        return
    paint, pause = Compositor.render_update, Pilot.pause

    def later(
        self: Compositor, full: bool = False, screen_stack: Any = None, simplify: bool = False
    ) -> Any:
        if full or simplify:  # a picture is asked for
            return paint(self, full, screen_stack, simplify)
        visible_screen_stack.set(screen_stack or [])
        return None

    async def rested(self: Pilot[Any], delay: float | None = None) -> None:
        await pause(self, delay)
        if delay is None:
            compositor = self.app.screen._compositor
            paint(compositor, screen_stack=self.app._background_screens)

    monkeypatch.setattr(Compositor, "render_update", later)
    monkeypatch.setattr(Pilot, "pause", rested)


@pytest.fixture
def no_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The torch child is not started: the test needs none."""
    from cubridge_tui.app import CuBridgeApp

    monkeypatch.setattr(CuBridgeApp, "_warm_up", lambda self: None)


@pytest.fixture(autouse=True)
def _short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests type as soon as they have seen the screen, so a short grace period is enough."""
    for module in ("screens.base", "widgets.line"):
        monkeypatch.setattr(f"cubridge_tui.{module}.GRACE", 0.02)


@pytest.fixture(autouse=True)
def _no_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """No process that predicts runs beside a test; one that wants costs gives them."""
    from cubridge_tui.screens.adaptation.costs import CostActions

    monkeypatch.setattr(CostActions, "_begin_costs", lambda self: None)


@pytest.fixture(autouse=True)
def _mask_between_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mask's picture, which is computed whenever nobody types, leaves gaps in which a pilot sees
    that the process is idle: it would wait for a second at each key."""
    monkeypatch.setattr("cubridge_tui.screens.mask.PAUSE", 0.05)
