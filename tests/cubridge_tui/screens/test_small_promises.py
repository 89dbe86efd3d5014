"""Small things that a person meets in the first hour."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from cubridge_tui.actions import (
    ACTIONS,
    ADAPTATION,
    EVERYWHERE,
    SCREENS,
    START,
    actions_of,
    elsewhere,
)
from cubridge_tui.actions.keywords import KEYWORDS
from cubridge_tui.model.rows import RowKind
from cubridge_tui.screens.accept import AcceptScreen
from cubridge_tui.screens.dialogs import GRACE
from cubridge_tui.screens.palette import ActionProvider
from cubridge_tui.screens.replay import ReplayScreen
from cubridge_tui.widgets.line import Line
from cubridge_tui.widgets.paint import ASIDE
from engine.service.session.workbench import find_kernel
from engine.types import DecisionKind, Stage
from sessions.store import Store
from tests.cubridge_tui.made import PLAIN, TableChild, bench_of, placed, verdict_of
from tests.cubridge_tui.screens.test_adaptation import Driver
from tests.engine.transfer.recipes import VARIANTS

pytestmark = pytest.mark.usefixtures("no_warm_up")
Proposed = tuple[Path, str]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "store.git"
    monkeypatch.setenv("CUBRIDGE_STORE", str(path))
    return path


async def test_accepting_what_is_accepted_makes_no_step_to_undo(proposed: Proposed) -> None:
    async with Driver(proposed[1]) as d:
        await d.press("right_square_bracket", "a", "left_square_bracket")
        assert d.screen.current_hunk() == "rules/h1"
        before = Store.open(proposed[0]).load(proposed[1]).commit
        await d.press("a")
        assert "rules/h1 is accepted already" in d.text
        assert Store.open(proposed[0]).load(proposed[1]).commit == before
        await d.press("x")  # another decision is one
        assert d.decisions()["h1"] is DecisionKind.REJECTED


async def test_a_proposal_without_hunks_is_exported_too(store: Path, tmp_path: Path) -> None:
    from engine.service.session.adaptation import Adaptation, start
    from engine.service.session.session_options import choose_options
    from engine.service.session.workbench import find_spec

    package, opened = find_kernel("flash_fwd_sm80"), Store.open(store)
    with bench_of(opened) as bench:
        bench.child.wanted = PLAIN  # type: ignore[attr-defined]
        session = start(bench, package, find_spec("full"), choose_options(package), "tester")
        with opened.writer(session) as writer:
            work = Adaptation(bench, writer, "tester")
            work.lift()
            hunks = work.propose_by_rules().hunks
    async with Driver(session, (120, 40)) as d:
        assert not hunks
        await d.press("right_square_bracket")
        assert "the proposal has no hunk" in d.text
        await d.press("X", "enter")
        assert "any browser shows it" in d.status()
    assert list(tmp_path.glob("*.html"))


async def test_after_g3_the_lowered_pane_is_at_its_first_change(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.service.session.adaptation import Adaptation
    from engine.types import Gate, VerdictKind

    def passed(self: Adaptation, lowering: Any = None) -> Any:
        return self.give(verdict_of(self, Gate.G3, VerdictKind.PASS, "made for a test"))

    monkeypatch.setattr(Adaptation, "judge_lowered", passed)
    session = placed(store, Stage.TARGET)
    async with Driver(session, (80, 24)) as d:
        d.app.bench.child = TableChild(VARIANTS["softcap_causal"])  # type: ignore[assignment]
        await d.press("s")
        assert d.screen.grid.focused_stage is Stage.LOWERED
        row, rows = d.screen.grid.leader.row, d.screen.grid.leader.content.rows
        first = next(r for r in rows if r.kind is not RowKind.SAME)
        assert row is not None and row == first
        assert row.text.strip()[:20] in d.text


async def test_without_a_gpu_the_job_is_packed(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.gpu.runners.has_gpu", lambda: False)
    async with Driver(placed(store), (80, 24)) as d:
        await d.press("v")
        line = d.app.screen.query_one("#decision", Line).text
        assert line.startswith(" Next: p  pack the job")
        await d.press("j")  # ssh
        assert d.app.screen.query_one("#decision", Line).text.startswith(" Next: r  run")


async def test_the_commit_page_says_that_it_is_done(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    for words in (["init", "-q"], ["config", "user.name", "T"], ["config", "user.email", "t@t.t"]):
        subprocess.run(["git", *words], cwd=theirs, check=True)
    monkeypatch.chdir(theirs)
    async with Driver(placed(store, Stage.VERIFIED), (80, 24)) as d:
        d.app.push_screen(AcceptScreen(d.screen))
        await d.settle()
        await d.press("A", "C", "enter", "C")
        assert "committed as" in d.text and "what was committed" in d.text
        assert "commits exactly this" not in d.text
        assert "esc goes back" in d.text
    log = subprocess.run(["git", "log", "--oneline"], cwd=theirs, capture_output=True, check=True)
    assert len(log.stdout.splitlines()) == 1


async def test_a_jump_stops_playing(store: Path) -> None:
    session = placed(store)
    async with Driver(session) as d:
        d.app.open_replay(session)
        await d.settle()
        screen = d.app.screen
        assert isinstance(screen, ReplayScreen)
        for key in ("right_square_bracket", "right_curly_bracket", "b", "s"):
            screen.deck.go(0)
            await d.press("space")
            assert screen._timer is not None and "playing" in d.text
            await d.press(key)
            assert screen._timer is None and "playing" not in d.text


@pytest.mark.parametrize(
    ("typed", "id"),
    [("diff", "view"), ("side", "view"), ("side by side", "view"), ("cost", "inspect"),
     ("approve", "accept-hunk"), ("find", "search"), ("revert", "undo"), ("llm", "ask-model")],
)  # fmt: skip
async def test_the_palette_finds_an_action_by_the_words_that_people_type(
    proposed: Proposed, typed: str, id: str
) -> None:
    async with Driver(proposed[1], (80, 24)) as d:
        provider = ActionProvider(d.screen)
        hits = sorted([hit async for hit in provider.search(typed)], reverse=True)
        words = next(a.words for a in ACTIONS if a.id == id)
        assert words in [hit.text for hit in hits[:3]]


@pytest.mark.parametrize("typed", ["replay", "diff", "undo", "commit", "export", "gpu", "theme",
                                   "mask", "help", "quit", "svg"])  # fmt: skip
async def test_the_palette_finds_what_other_screens_do_and_says_the_way(
    proposed: Proposed, typed: str
) -> None:
    """From the start screen and from the panes; what can be done here comes first."""
    async with Driver(proposed[1], (80, 24)) as d:
        for name in (ADAPTATION, START):
            if name == START:
                await d.press("B")
            assert d.app.action_screen is not None and name == d.app.action_screen.NAME
            found = [hit async for hit in ActionProvider(d.app.screen).search(typed)]
            assert found, name
            here = {a.words for a in actions_of(name)}
            away = [hit for hit in found if hit.text not in here]
            assert all(a.score < h.score for a in away for h in found if h not in away)
            for hit in away:
                hit.command()
                line = d.app.screen.query_one("#status", Line).text
                assert hit.text in line and ("screen" in line or "panes" in line)
        assert away or typed in ("theme", "help", "quit"), "on the start screen it is elsewhere"


def test_every_action_of_another_screen_has_its_way_there() -> None:
    for screen in SCREENS[1:]:
        told = dict(elsewhere(screen))
        others = {a for a in ACTIONS if a.screen not in (screen, EVERYWHERE)}
        assert set(told) == others
        assert all(where.endswith(")") and "(" in where for where in told.values())
    names = {a.id: where for a, where in elsewhere(ADAPTATION)}
    assert names["replay"] == "p on the start screen (B in the panes)"
    assert names["gpu-export"] == "x on the gpu screen (v in the panes)"


def test_keywords_name_actions() -> None:
    assert set(KEYWORDS) <= {a.id for a in ACTIONS}
    own = {w for words in KEYWORDS.values() for w in words}
    assert all(w and w == w.lower() for w in own)


async def test_a_pane_that_is_scrolled_sideways_says_so_and_a_jump_goes_back(
    proposed: tuple[Path, str],
) -> None:
    async with Driver(proposed[1], (80, 24)) as d:
        d.screen.grid.lead(Stage.TARGET)
        d.screen.place_panes()
        pane = d.screen.grid.leader
        await d.press("right_square_bracket")
        assert ASIDE not in d.text
        await d.press("l", "l")
        assert pane.scroll_offset.x == 8
        assert d.text.count(ASIDE) >= pane.size.height - 2
        await d.press("right_square_bracket")
        assert pane.scroll_offset.x == 0 and ASIDE not in d.text


@pytest.mark.parametrize("key", ["a", "A"])
async def test_undo_is_in_the_footer_of_a_narrow_terminal(
    proposed: tuple[Path, str], key: str
) -> None:
    """With the words of what it takes back where they fit, and by itself where not."""
    async with Driver(proposed[1], (80, 24)) as d:
        await d.press("right_square_bracket", key)
        d.screen.grid.lead(Stage.TARGET)
        await d.press("right_square_bracket")
        foot = d.text.split("\n")[-1]
        assert " u undo" in foot and " a accept" in foot and " x reject" in foot, foot
        assert "? help" in foot and "q quit" in foot


async def test_the_review_is_written_where_the_person_says_and_over_nothing_unasked(
    proposed: Proposed, tmp_path: Path
) -> None:
    files = tmp_path / "reviews"
    files.mkdir()
    mine = files / "mine.md"
    mine.write_text("my own notes", encoding="utf-8")
    async with Driver(proposed[1]) as d:
        for name, why in (("", "is a folder"), ("no/x.md", "there is no folder")):
            await d.press("X")
            d.app.screen.query_one("Input").value = str(files / name)
            await d.press("enter")
            assert why in d.text
            await d.press("escape")
        assert not list(tmp_path.glob("*.md"))  # nothing before the person said where
        await d.press("X")
        d.app.screen.query_one("Input").value = str(mine)
        await d.press("enter")
        await d.pilot.pause(2 * GRACE)  # no answer before it could be read
        await d.press("n")
        assert mine.read_text(encoding="utf-8") == "my own notes"
        await d.press("X")
        d.app.screen.query_one("Input").value = str(mine)
        await d.press("enter")
        assert "mine.md" in d.text and "already" in d.text
        await d.pilot.pause(2 * GRACE)
        await d.press("y")
        assert "rules/h1" in mine.read_text(encoding="utf-8")
