"""Every action of every screen, in the screen's emptiest state, does something or says why not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cubridge_tui import actions
from cubridge_tui.app import CuBridgeApp
from cubridge_tui.screens.base import ActionScreen
from cubridge_tui.widgets.line import Line
from engine.types import Stage
from tests.cubridge_tui.conftest import screen_text, settled
from tests.cubridge_tui.made import placed
from tests.cubridge_tui.screens.opening import open_screen

pytestmark = pytest.mark.usefixtures("no_warm_up")
# These end the app, or open another program on the terminal.
LEFT_OUT = {"quit", "edit-outside", "write"}


# The stage at which a screen has the least to show; the start screen has no session.
STAGES: dict[str, Stage | None] = {
    actions.START: None,
    actions.ADAPTATION: Stage.SOURCE,
    actions.HUNKS: Stage.TARGET,
    actions.ACCEPT: Stage.SOURCE,
    actions.REPLAY: Stage.SOURCE,
    actions.MASK: Stage.TARGET,
    actions.COST: Stage.TARGET,
    actions.GPU: Stage.LOWERED,
    actions.MODEL: Stage.LIFTED,
}


def test_every_screen_of_the_table_is_looked_at() -> None:
    assert set(STAGES) == set(actions.SCREENS) - {actions.EVERYWHERE}


class Visitor:
    """Goes back to a screen after each action, as it was at the beginning."""

    def __init__(self, app: CuBridgeApp, pilot: Any, session: str, name: str) -> None:
        self.app, self.pilot, self.session, self.name = app, pilot, session, name
        self.seen: tuple[Any, ...] | None = None

    @property
    def text(self) -> str:
        """What is shown, but for the status line."""
        said = self.said(self.app.screen)
        return "\n".join(line for line in screen_text(self.app).split("\n") if line != said)

    async def open(self) -> ActionScreen:
        """The screen; opened anew where the last action changed what it shows."""
        if self.seen is not None and self.seen == (self.app.screen, self.app.focused, self.text):
            self.app.screen.say("")  # type: ignore[attr-defined]
            return self.app.screen  # type: ignore[return-value]
        while len(self.app.screen_stack) > 1:
            leave = getattr(self.app.screen, "leave", None)
            if leave is not None:
                leave()
            self.app.pop_screen()
            await settled(self.app, self.pilot)
        screen = await open_screen(self.app, self.pilot, self.name, self.session)
        assert isinstance(screen, ActionScreen) and self.name == screen.NAME
        self.seen = (screen, screen.focused, self.text)
        return screen

    def said(self, screen: Any) -> str:
        return "".join(line.text for line in screen.query("#status").results(Line))


@pytest.mark.parametrize("name", STAGES)
async def test_no_action_is_silent(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.git"
    monkeypatch.setenv("CUBRIDGE_STORE", str(path))
    for variable in ("CUBRIDGE_LLM_URL", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("engine.gpu.runners.has_gpu", lambda: False)
    stage = STAGES[name]
    session = placed(path, stage) if stage is not None else ""
    app = CuBridgeApp()
    silent = []
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(app, pilot)
        visitor = Visitor(app, pilot, session, name)
        for action in actions.actions_of(name):
            if action.id in LEFT_OUT:
                continue
            screen = await visitor.open()
            before, focus = visitor.text, screen.focused
            why = action.when(screen.facts())
            screen.action_act(action.id)
            await settled(app, pilot)
            after = visitor.text
            spoke = visitor.said(screen) if app.screen is screen else "another screen"
            if why:
                assert why[:60] in spoke, (action.id, why, spoke)
            elif after == before and not spoke.strip() and screen.focused is focus:
                silent.append(action.id)
    app.close()
    assert not silent


async def test_a_start_screen_without_anything_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("list_kernels", "list_specs"):
        monkeypatch.setattr(f"engine.resources.{name}", lambda: ())
    app = CuBridgeApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(app, pilot)
        screen = app.action_screen
        assert screen is not None
        for key in ("s", "enter"):
            await pilot.press(key)
            await settled(app, pilot)
            assert "the installation is not whole" in screen_text(app)
        await pilot.press("p")
        await settled(app, pilot)
        assert "there is no session yet" in screen_text(app)
    app.close()
