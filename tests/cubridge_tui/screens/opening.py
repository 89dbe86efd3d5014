"""How each screen opens, for the tests that look at all of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cubridge_tui import actions
from cubridge_tui.app import CuBridgeApp
from cubridge_tui.screens.accept import AcceptScreen
from cubridge_tui.screens.commit import CommitScreen
from tests.cubridge_tui.conftest import settled

Opens = Callable[[CuBridgeApp, str], Any]
COMMIT = "commit"  # a page without a table of actions


def _act(name: str) -> Opens:
    return lambda app, _: app.action_screen.action_act(name)  # type: ignore[union-attr]


# From any screen, by the session's id.
BY_ID: dict[str, Opens] = {
    actions.ADAPTATION: CuBridgeApp.open_session,
    actions.REPLAY: CuBridgeApp.open_replay,
}
# From the session's own screen too.
OPENS: dict[str, Opens] = BY_ID | {
    actions.ACCEPT: lambda app, _: app.push_screen(AcceptScreen(app.screen)),  # type: ignore[arg-type]
    COMMIT: lambda app, _: app.push_screen(CommitScreen(app.screen, Path.cwd() / "mine")),  # type: ignore[arg-type]
    actions.HUNKS: _act("hunks"),
    actions.MASK: _act("mask"),
    actions.COST: _act("cost"),
    actions.GPU: _act("gpu"),
    actions.MODEL: _act("ask-model"),
}


async def open_screen(app: CuBridgeApp, pilot: Any, name: str, session: str) -> Any:
    """The named screen, opened from the start screen."""
    if name not in {actions.START, *BY_ID}:
        app.open_session(session)
        await settled(app, pilot)
    if name != actions.START:
        OPENS[name](app, session)
    await settled(app, pilot)
    return app.screen
