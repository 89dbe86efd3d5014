"""Keys typed in a burst: those behind a key that opens something are for what it opens."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual import events
from textual.widgets import Input

from cubridge_tui.screens.dialogs import Prompt
from sessions.store import Store
from tests.cubridge_tui.screens.test_adaptation import Driver

pytestmark = pytest.mark.usefixtures("no_warm_up", "every_frame")
Proposed = tuple[Path, str]
NAMES = {"/": "slash", ":": "colon", "\r": "enter", "\x1b": "escape", "\x7f": "backspace",
         "]": "right_square_bracket", "\t": "tab"}  # fmt: skip


async def burst(d: Driver, text: str) -> None:
    """All at once, as a terminal's one read brings them."""
    for character in text:
        d.app.post_message(events.Key(NAMES.get(character, character), character))
    await d.settle()
    await d.settle()


BURSTS = [
    ("/kjlhG\r", "kjlhG"),  # all letters that move a pane's cursor
    ("/scalx\x7fe\r", "scale"),
    ("jj/scale\r", "scale"),
    ("/first\x1b/second\r", "second"),
    ("/" + "k" * 300 + "\r", "k" * 300),
]


async def test_a_prompt_typed_into_at_once_gets_all_of_it(proposed: Proposed) -> None:
    async with Driver(proposed[1]) as d:
        for typed, words in BURSTS:
            await burst(d, typed)
            assert d.screen.words == words
        await burst(d, "/sca")  # in place of the words that stand there
        assert isinstance(d.app.screen, Prompt)
        assert d.app.screen.query_one(Input).value == "sca"
        await d.press("l", "e")
        await burst(d, "d")
        assert d.app.screen.query_one(Input).value == "scaled"
        await d.press("enter")
        assert d.screen.words == "scaled"


async def test_actions_in_a_burst_come_in_their_order(proposed: Proposed) -> None:
    async with Driver(proposed[1]) as d:
        await burst(d, "]cfirst\rjj?")
        assert "help" in d.text.lower()
        await d.press("escape")
        await burst(d, "q?")  # the pane goes away: nothing is held back for ever
        assert "help" in d.text.lower()
    state = Store.open(proposed[0]).load(proposed[1]).state
    assert [comment.text for comment in state.comments.values()] == ["first"]
