"""The palette: every action of the screen by its words, and by others that people type."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from cubridge_tui.actions import Action, actions_of, key_name
from cubridge_tui.actions.keywords import KEYWORDS
from cubridge_tui.screens.base import ActionScreen

if TYPE_CHECKING:
    from cubridge_tui.app import CuBridgeApp


class ActionProvider(Provider):
    """Actions of the table; one that cannot be done now says why."""

    def _target(self) -> ActionScreen | None:
        return cast("CuBridgeApp", self.app).action_screen

    def _rows(self) -> list[tuple[Action, str]]:
        screen = self._target()
        if screen is None:
            return []
        facts = screen.facts()
        table = screen.cubridge.actions
        return [(a, a.when(facts)) for a in actions_of(screen.NAME, table)]

    async def discover(self) -> Hits:
        for action, why in self._rows():
            yield DiscoveryHit(_label(action), partial(self._do, action), action.words, why or None)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for action, why in self._rows():
            told = (action.words, action.id, action.footer, *KEYWORDS.get(action.id, ()))
            score = max(map(matcher.match, filter(None, told)))
            if score > 0:
                yield Hit(
                    score, _label(action), partial(self._do, action), action.words, why or None
                )

    def _do(self, action: Action) -> None:
        screen = self._target()
        if screen is not None:
            screen.action_act(action.id)


def _label(action: Action) -> Content:
    keys = " ".join(map(key_name, action.keys))
    return Content(f"{action.words}  {keys}")
