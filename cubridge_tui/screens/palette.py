"""The palette: every action of the screen by its words, and by others that people type; those of
other screens where what is typed stands in their words, with the way there.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from textual.command import CommandPalette, DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from cubridge_tui.actions import Action, actions_of, elsewhere, key_name
from cubridge_tui.actions.keywords import KEYWORDS
from cubridge_tui.screens.base import ActionScreen
from cubridge_tui.screens.closing import ClosingScreen

if TYPE_CHECKING:
    from cubridge_tui.app import CuBridgeApp

LEAST = 3  # letters that say enough to look on other screens too


class Palette(CommandPalette, ClosingScreen[None]):
    """Textual's, which closes once."""


class ActionProvider(Provider):
    """Actions of the table; one that cannot be done now says why."""

    _chosen = False  # of two keys that came at once the first chose: the palette closes

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
            score = max(map(matcher.match, (action.id, *_told(action))))
            if score > 0:
                yield Hit(
                    score, _label(action), partial(self._do, action), action.words, why or None
                )

        screen = self._target()
        typed = query.strip().lower()
        if screen is None or len(typed) < LEAST:
            return
        for action, where in elsewhere(screen.NAME, screen.cubridge.actions):
            if any(typed in words.lower() for words in _told(action)):
                # Below what can be done here; chosen, it says the way.
                say = partial(screen.say, f"{action.words}: {where}")
                yield Hit(0.01, Content(f"{action.words}  {where}"), say, action.words)

    def _do(self, action: Action) -> None:
        screen = self._target()
        if screen is not None and not self._chosen:
            self._chosen = True
            screen.action_act(action.id)


def _told(action: Action) -> list[str]:
    """The words that an action is found by."""
    told = (action.words, action.footer, *KEYWORDS.get(action.id, ()))
    return [words for words in told if words]


def _label(action: Action) -> Content:
    keys = " ".join(map(key_name, action.keys))
    return Content(f"{action.words}  {keys}")
