"""Panes that follow the cursor, long lines taken apart, changed words, search while typing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cubridge_tui.model.linediff import changed_words, with_changed_words
from cubridge_tui.model.rows import CHANGES, EVERY, Row, RowKind, fitted
from cubridge_tui.screens.adaptation import panes
from engine.types import Stage
from tests.cubridge_tui.screens.test_adaptation import Driver

pytestmark = pytest.mark.usefixtures("no_warm_up")


async def test_panes_follow_wrap_and_are_searched_together(proposed: tuple[Path, str]) -> None:
    async with Driver(proposed[1], (200, 60)) as d:
        screen, grid = d.screen, d.screen.grid
        assert Stage.LOWERED not in screen.layout_now().panes  # nothing is lowered: no room for it
        assert screen.layout_now().tall is Stage.TARGET
        screen.show_proposal()
        await d.settle()
        source = grid.panes[Stage.SOURCE]

        # A statement that only the target has: the others show where it would stand.
        leader = grid.leader
        new = next(
            i for i, r in enumerate(leader.content.rows) if r.text.strip().startswith("m_ok =")
        )
        leader.go_to(new)
        await d.settle()
        assert source.row is not None and "row_max(s, m)" in source.row.text
        await d.press("f")
        at = source.cursor
        leader.go_to(0)
        await d.settle()
        assert source.cursor == at and not screen.follows
        await d.press("f")
        assert screen.follows

        # Long lines go on in the next row, and are copied whole.
        long = next(i for i, r in enumerate(source.given.rows) if len(r.text) > source.size.width)
        text = source.given.rows[long].text
        await d.press("t")
        rows = [i for i, at in enumerate(source._places) if at == long]
        assert len(rows) > 1
        assert all(len(source.content.rows[i].text) < source.size.width for i in rows)
        source.go_to(rows[0])
        assert source.copied() == text
        await d.press("t")
        assert source.content.rows == source.given.rows

        # While typing, in all panes, with counts; escape puts back what was searched before.
        await d.press("slash", *"row_max")
        assert "source 1, lifted 1, target 1, lowered 0" in d.text
        await d.press("enter")
        assert "3 lines match 'row_max'" in d.status()
        await d.press("slash", *"zzz", "escape")
        assert screen.words == "row_max"


def test_changed_words_of_a_line_and_of_one_that_is_another() -> None:
    old, new = "s = keep(s, lambda i, j: j < n)", "s = keep(s, lambda i, j: j < n and j <= i)"
    ratio, gone, came = changed_words(old, new)
    assert ratio > 0.5 and gone == () and [new[a:b] for a, b in came] == [" and j <= i"]
    rows = [Row(old, RowKind.DEL, 1), Row("x = 1", RowKind.ADD, 1), Row(new, RowKind.ADD, 2)]
    made = with_changed_words(rows)
    assert [bool(r.changed) for r in made] == [False, False, True]
    assert not any(r.changed for r in with_changed_words([rows[0], rows[1]]))


def test_pieces_are_told_from_whole_rows() -> None:
    rows = [
        Row("why    " + "word " * 30, RowKind.NOTE),
        Row("x" * 90, number=1),
        Row("y", number=2),
    ]
    shown, places = fitted(rows, 40)
    assert [r.kind for r in shown[:-2]] == [RowKind.NOTE] * (len(shown) - 2)
    assert list(places) == [0] * (len(shown) - 2) + [1, 2]
    assert all(r.text.startswith("       ") for r in shown[1:-2])
    every, _ = fitted(rows, 40, EVERY)
    assert [r.number for r in every if r.kind is RowKind.SAME] == [1, None, None, 2]


@given(st.text("ab .(", min_size=1, max_size=120), st.integers(20, 60), st.data())
def test_what_changed_is_marked_in_the_pieces_of_a_line(text: str, width: int, data: Any) -> None:
    """Every character that was marked, but for blanks at a break, is marked once, and no other."""
    begin = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(begin + 1, len(text)))
    row = Row(text, RowKind.ADD, 7, "rules", changed=((begin, end),))
    shown, _ = fitted([row], width, CHANGES)
    marked = "".join(r.text[a:b] for r in shown for a, b in r.changed)
    assert marked.replace(" ", "") == text[begin:end].replace(" ", "")
    assert [r.number for r in shown] == [7] + [None] * (len(shown) - 1)
    assert all(len(r.text) <= width for r in shown)


def test_a_blank_past_the_width_is_left_out() -> None:
    (shown,), _ = fitted([Row("a" * 20 + " ", RowKind.ADD)], 20, CHANGES)
    assert shown.text == "a" * 20


async def test_a_hunks_head_copies_its_new_text(
    proposed: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []

    def note(_app: Any, text: str) -> str:
        taken.append(text)
        return "noted"

    monkeypatch.setattr(panes, "copy", note)
    async with Driver(proposed[1], (120, 40)) as d:
        await d.press("right_square_bracket", "y", "J", "y")
        found = d.screen.snap.hunk(d.screen.current_hunk())
        assert found is not None and taken[0] == found[1].after
        assert taken[1].startswith(f"{found[1].id} ")  # selected lines stay as they are shown
