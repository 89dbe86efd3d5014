"""What the pages that are opened from a session show: acceptance, inspector, replay, commit."""

from __future__ import annotations

import asyncio
import re
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cubridge_tui.model.inspect import inspect
from cubridge_tui.model.layout import layout
from cubridge_tui.model.rows import RowKind
from cubridge_tui.model.snapshot import View
from cubridge_tui.screens.accept import AcceptScreen
from cubridge_tui.screens.dialogs import Confirm
from cubridge_tui.screens.mask import MaskScreen, MaskSubject
from cubridge_tui.screens.replay import ReplayScreen
from engine.service.session.adaptation import Adaptation
from engine.spec.recipes.recipe import Input
from engine.types import Decision, DecisionKind, Gate, Stage, VerdictKind
from sessions.store import Store
from tests.cubridge_tui.made import bench_of, made, placed, verdict_of
from tests.cubridge_tui.model.test_built import build
from tests.cubridge_tui.screens.test_adaptation import Driver
from tests.engine.transfer.recipes import recipe

pytestmark = pytest.mark.usefixtures("no_warm_up")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CUBRIDGE_STORE", str(tmp_path / "store.git"))
    return tmp_path / "store.git"


async def give_g3(d: Driver, kind: VerdictKind = VerdictKind.PASS) -> None:
    """G3's verdict on the present content, with a build beside the expert's."""
    desk = d.screen.open_desk
    details = {
        "build": build(168, 0, 2), "expert": build(160, 0, 2),
        "conformance": {"runs": [], "unproven": [
            {"primitive": "soft_cap", "why": "no run has it", "command": "python3 run.py"}]},
    }  # fmt: skip
    verdict = verdict_of(desk.work, Gate.G3, kind, "made for a test", details)
    d.screen.job("give", lambda: (desk.work.give(verdict), desk.snapshot())[1], quiet=True)
    await d.settle()


async def until(d: Driver, true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline, (d.text, list(d.app.jobs.log))
        await asyncio.sleep(0.02)
        await d.settle()


async def test_resources_and_a_prediction_are_on_the_accept_page(store: Path) -> None:
    async with Driver(placed(store), (80, 60)) as d:
        await give_g3(d)
        d.app.push_screen(AcceptScreen(d.screen))
        await until(d, lambda: "not measured" in d.text)
        assert "168 (160)" in d.text and "blocks/SM" in d.text
        assert "A100" in d.text and "TFLOP/s = 2 (D + Dv)" in d.text
        assert "soft_cap: no run has it" in d.text


async def test_a_page_that_still_predicts_is_answered(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes later adds lines; it changes nothing of what `A` accepts, and `A` counts once."""
    go_on, accepted = threading.Event(), []
    monkeypatch.setattr(
        "cubridge_tui.screens.accept.predictions", lambda *_: go_on.wait(60) and ["later"]
    )
    async with Driver(placed(store), (80, 60)) as d:
        page = AcceptScreen(d.screen)
        d.screen.open_desk.accept = lambda: accepted.append(1)  # type: ignore[method-assign,assignment]
        d.app.push_screen(page)
        await d.pilot.pause(0.1)
        monkeypatch.setattr("cubridge_tui.screens.base.GRACE", 0.0)
        assert d.app.jobs.busy and not page.too_soon()
        page.do_confirm()
        page.do_confirm()
        go_on.set()
        await d.settle()
        assert accepted == [1]


async def test_resources_are_in_the_dialog_of_a_failed_g3_and_the_inspector(store: Path) -> None:
    async with Driver(placed(store), (120, 60)) as d:
        await give_g3(d, VerdictKind.FAIL)
        await d.press("w")
        assert "168 (160)" in d.text and "soft_cap: no run has it" in d.text
        snap = d.screen.snap
        assert snap is not None
        rows = snap.panes[View.OPS][Stage.TARGET].rows
        row = next(r for r in rows if "row_max(" in r.text and r.number)
        (built,) = [line for line in inspect(snap, Stage.TARGET, row) if line.startswith("built")]
        assert "bf16_64: 168 (160) registers" in built


async def test_a_run_that_says_nothing_shows_how_long_it_has_run(store: Path) -> None:
    go_on = threading.Event()
    async with Driver(placed(store), (100, 30)) as d:
        d.app.jobs.submit("G3", lambda: go_on.wait(60), lambda _: None)
        try:
            d.app.jobs.since -= 125
            deadline = time.monotonic() + 60
            while "2 min" not in d.text:  # the app's own tick brings it, without any news
                assert time.monotonic() < deadline, d.text
                await d.pilot.pause(0.05)
        finally:
            go_on.set()
        await d.settle()
        assert d.app.jobs.line == ""


async def test_the_head_line_of_an_accepted_hunk_is_about_its_op_in_the_target(
    store: Path,
) -> None:
    async with Driver(placed(store), (120, 40)) as d:
        snap = d.screen.snap
        assert snap is not None
        rows = snap.panes[View.OPS][Stage.TARGET].rows
        heads = [i for i, row in enumerate(rows) if row.kind is RowKind.HEAD]
        assert len(heads) >= 5
        for at in heads:
            added = next(r for r in rows[at:] if r.kind is RowKind.ADD and r.key is not None)
            said = inspect(snap, Stage.TARGET, rows[at])
            assert f"target     line {added.number}" in said, said
            assert not any("not in this text" in line for line in said)
        rows_of = next(r for r in rows if r.text.strip().startswith("m = fill(") and r.number)
        lives = next(x for x in inspect(snap, Stage.TARGET, rows_of) if x.startswith("lives"))
        assert "16 bytes a thread of 128" in lives and "4 copies" in lives


async def test_an_op_that_is_only_proposed_is_said_to_be(store: Path) -> None:
    """Every op on the screen is in a text, or the inspector names the hunk that proposes it."""
    session = placed(store, Stage.TARGET)
    async with Driver(session, (120, 40)) as d:
        await d.press("u")
        desk, name = d.screen.open_desk, d.hunk("score_factor =")
        undecided = desk.snapshot()
        for snap, word in ((undecided, "undecided"), (desk.decide(name, DecisionKind.REJECTED),
                                                      "rejected")):  # fmt: skip
            for view in View:
                rows = [r for r in snap.panes[view][Stage.TARGET].rows if r.key is not None]
                mine = [r for r in rows if "score_factor =" in r.text and r.hunk == name]
                assert mine or view is not View.OPS
                for row in rows:
                    said = inspect(snap, Stage.TARGET, row)
                    assert not any("not in this text" in line for line in said)
                    if row in mine:
                        assert f"target     proposed by {name}, {word}" in said, said
                    elif "target     not there" in said:  # it goes: it is in the expert's text
                        assert any(x.startswith("lifted     line") for x in said), said


async def test_a_replayed_rejection_is_in_view_and_a_fork_opens_at_the_next_decision(
    store: Path,
) -> None:
    made_at = Store.open(store)
    session = made(made_at, Stage.LIFTED)
    with bench_of(made_at) as bench, made_at.writer(session) as writer:
        work = Adaptation(bench, writer, "tester")
        hunks = work.propose_by_rules().hunks
        for hunk in hunks[:6]:
            kind = DecisionKind.REJECTED if hunk is hunks[5] else DecisionKind.ACCEPTED
            work.decide(Decision(f"rules/{hunk.id}", kind, "tester"))
    async with Driver(session, (120, 30)) as d:
        d.app.open_replay(session)
        await d.settle()
        await d.press("end")
        screen = d.app.screen
        assert isinstance(screen, ReplayScreen)
        deck = screen.deck
        assert "rejected rules/h6" in deck.tape.steps[deck.position].words
        pane = deck.text
        row = pane.row
        assert row is not None and row.hunk == "rules/h6" and "h6" in row.text
        top, height = pane.scroll_offset.y, pane.scrollable_content_region.height
        assert top <= pane.cursor < top + height and hunks[5].after.strip() in d.text
        await d.press("c")
        assert isinstance(d.app.screen, Confirm)
        d.app.screen._asked -= 1
        await d.press("y")
        forked = d.screen
        assert forked.session != session
        assert forked.grid.focused_stage is Stage.TARGET
        assert forked.current_hunk() == "rules/h7"
        shown = layout(*forked.pane_room(), forked.wish, forked.grid.focused_stage).panes
        assert shown == (Stage.LIFTED, Stage.TARGET)


def shown_words(d: Driver) -> str:
    """The words of the dialog that stands over the screen, else of the screen."""
    inside = re.findall("│(.*)│", d.text)
    text = " ".join(inside) if inside else d.text
    return " ".join(re.sub(r"[^\x21-\x7e]+", " ", text).split())


async def test_a_refused_commit_shows_its_whole_fix_at_80_columns(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=theirs, check=True)
    subprocess.run(["git", "config", "user.useConfigOnly", "true"], cwd=theirs, check=True)
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, "/dev/null")
    for name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME",
                 "GIT_COMMITTER_EMAIL", "EMAIL"):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(theirs)
    async with Driver(placed(store, Stage.VERIFIED), (80, 24)) as d:
        d.app.push_screen(AcceptScreen(d.screen))
        await d.settle()
        await d.press("A", "C", "enter", "C")
        fix = 'git config --global user.name "..."; git config --global user.email "..."'
        assert fix in shown_words(d), d.text


async def test_a_refused_package_shows_its_whole_fix(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with Driver(placed(store, Stage.VERIFIED), (80, 24)) as d:
        d.app.push_screen(AcceptScreen(d.screen))
        await d.settle()
        await d.press("A", "w")
        for key in ("t", "o", "r", "c", "h"):
            await d.pilot.press(key)
        await d.press("enter")
        assert "name the folder attention_torch, or another name that nothing has" in shown_words(d)


async def test_the_accept_page_says_that_the_spec_changed_on_disk(store: Path) -> None:
    async with Driver(placed(store), (80, 24)) as d:
        snap = d.screen.snap
        assert snap is not None
        d.screen.show(replace(snap, changed="spec"))
        d.app.push_screen(AcceptScreen(d.screen))
        await d.settle()
        assert "The spec changed on disk" in shown_words(d)


async def test_the_mask_page_shows_its_example_values(store: Path) -> None:
    lens = Input("lens", "extra", "i32", ("B",))
    async with Driver(placed(store), (80, 24)) as d:
        wanted = recipe(keep="j < lens[b]", extra=(lens,))
        d.app.push_screen(MaskScreen(MaskSubject("kvlen", wanted)))
        await d.settle()
        screen = d.app.screen
        assert isinstance(screen, MaskScreen) and screen.pane.grid is not None
        length = max(screen.sizes["Nk"] * 3 // 4, 1)
        assert f"example values: lens {length}" in d.text
        screen.pane.grid.compute(0)
        assert screen.pane.grid.pair(0, 0) is not None and 0 not in screen.pane.grid.empty
