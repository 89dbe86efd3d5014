"""What is cut at a narrow width is what tells least."""

from __future__ import annotations

import pytest
from textual.color import BLACK

from cubridge_tui.model.review import WORDS, head_of
from cubridge_tui.model.rows import Row, RowKind
from cubridge_tui.themes import load_themes
from cubridge_tui.widgets.paint import Flags, Inks, paint_row
from cubridge_tui.widgets.stage_bar import title_in
from engine.types import Decision, DecisionKind, Hunk, Origin

KINDS = [*DecisionKind, None]


def painted(text: str, room: int, kind: RowKind = RowKind.HEAD) -> str:
    palette = load_themes()[0][0]
    inks = Inks(palette, palette.style(""), (), BLACK)
    row = Row(text, kind)
    return "".join(s.text for s in paint_row(row, "", (), (), Flags(), inks, 0, room)).rstrip()


def hunk(title: str, clause: str = "mask") -> Hunk:
    return Hunk("h12", title, "", clause, "", "", (), Origin.RULES)


@pytest.mark.parametrize("room", [150, 72, 52, 44])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("title", ["Visit only tiles that hold a kept pair; compute it once " * 2,
                                   "a · person · rejected · trick " * 4])  # fmt: skip
def test_a_hunks_head_keeps_its_decision(title: str, kind: DecisionKind | None, room: int) -> None:
    text = "x = 1" if kind is DecisionKind.EDITED else None
    decision = Decision("rules/h12", kind, "ana", "", text) if kind is not None else None
    shown = painted(head_of(hunk(title), decision), room)
    assert len(shown) <= room and shown.startswith("h12 ")
    assert kind is None or f" · {WORDS[kind]}" in shown, shown
    shown = painted(head_of(hunk(title), decision, "hunk:1:2: no\nCuIR"), room)
    assert len(shown) <= room and " · DRAFT" in shown
    assert kind is None or WORDS[kind] in shown


def test_a_head_that_fits_is_whole_and_a_note_is_cut_at_its_end() -> None:
    text = head_of(hunk("Mask"), None)
    assert painted(text, len(text)) == text == "h12 Mask · rules · undecided · clause: mask"
    assert painted(text, len(text) - 1) == "h12 Mask · rules · undecided"
    title = "Leave out what lies under the mask"  # whole before the origin, which the gutter says
    assert painted(head_of(hunk(title), None), 52) == f"h12 {title} · undecided"
    assert painted(head_of(hunk(title), None), 40) == f"h12 {title}"
    assert painted(text, 20, RowKind.NOTE) == text[:19] + "…"


@pytest.mark.parametrize("room", range(14, 60))
@pytest.mark.parametrize("arch", ["sm80", "sm90"])
def test_a_title_keeps_what_tells_kernels_apart(arch: str, room: int) -> None:
    title = f"softcap_and_window_causal on flash_fwd_{arch}"
    shown = title_in(title, room)
    assert len(shown) <= room and shown.endswith(arch) and shown.startswith("soft")
    assert title_in(title, len(title)) == title


def test_a_title_of_ones_own_is_cut_at_its_end() -> None:
    assert title_in("my third try at it", 8) == "my thir…"
    assert title_in("on it", 3) == "on…"
