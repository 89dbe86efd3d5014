"""The adaptation screen through Textual's pilot, notifications and tooltips on."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from cubridge_tui import places
from cubridge_tui.app import CuBridgeApp
from cubridge_tui.model.linediff import FILLER
from cubridge_tui.model.rows import RowKind
from cubridge_tui.model.snapshot import View
from cubridge_tui.screens.adaptation import AdaptationScreen
from cubridge_tui.screens.base import GRACE
from cubridge_tui.screens.dialogs import Confirm, TextDialog
from cubridge_tui.widgets.code_pane import CodePane
from engine.cuir.nodes import walk
from engine.types import DecisionKind, Gate, Stage, VerdictKind
from sessions.events import Committed
from sessions.replay import lines
from sessions.store import Store
from tests.cubridge_tui.conftest import screen_text, settled
from tests.cubridge_tui.made import placed, verdict_of

pytestmark = pytest.mark.usefixtures("no_warm_up")
Proposed = tuple[Path, str]


class Driver:
    """The app on a session, with the few things that every test does."""

    def __init__(self, session: str, size: tuple[int, int] = (160, 48)) -> None:
        self.app = CuBridgeApp(session=session)
        self._size = size

    async def __aenter__(self) -> Driver:
        self._context = self.app.run_test(size=self._size, notifications=True, tooltips=True)
        self.pilot = await self._context.__aenter__()
        await self.settle()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._context.__aexit__(*error)  # type: ignore[arg-type]
        self.app.close()

    async def settle(self) -> None:
        await settled(self.app, self.pilot)

    async def press(self, *keys: str) -> None:
        """Keys as a person types them: after having seen what is there."""
        for key in keys:
            await asyncio.sleep(0.03)
            await self.pilot.press(key)
            await self.settle()

    @property
    def screen(self) -> AdaptationScreen:
        found = self.app.action_screen
        assert isinstance(found, AdaptationScreen)
        return found

    @property
    def text(self) -> str:
        return screen_text(self.app)

    def status(self) -> str:
        from cubridge_tui.widgets.line import Line

        return self.screen.query_one("#status", Line).text

    def hunk(self, text: str) -> str:
        """The name of the first hunk that puts this text into the target."""
        assert self.screen.snap is not None
        return next(f"{p.id}/{h.id}" for p, h, _ in self.screen.snap.hunks if text in h.after)

    def decisions(self) -> dict[str, DecisionKind | None]:
        assert self.screen.snap is not None
        return {h.id: d.kind if d else None for _, h, d in self.screen.snap.hunks}


async def test_hunks_are_decided_undone_and_made_again(proposed: Proposed) -> None:
    async with Driver(proposed[1]) as d:
        assert "Decide on" in d.text
        await d.press("right_square_bracket")
        assert d.screen.grid.focused_stage is Stage.TARGET
        await d.press("a")
        assert d.decisions()["h1"] is DecisionKind.ACCEPTED
        await d.press("x")
        assert d.decisions()["h2"] is DecisionKind.REJECTED
        await d.press("u")
        assert d.decisions()["h2"] is None
        await d.press("U")
        assert d.decisions()["h2"] is DecisionKind.REJECTED
        await d.press("u", "A")
        assert set(d.decisions().values()) == {DecisionKind.ACCEPTED}
        assert "Run G2" in d.text
    kept = Store.open(proposed[0]).load(proposed[1]).state
    assert all(kept.decision("rules", h.id) for h in kept.proposals[0].hunks)


async def test_accept_all_first_is_the_one_decision_that_headless_makes(proposed: Proposed) -> None:
    async with Driver(proposed[1]) as d:
        await d.press("A")
    events = Store.open(proposed[0]).load(proposed[1]).events
    made = [e.body.decision.target for e in events if e.type == "HunkDecided"]  # type: ignore[union-attr]
    assert made == ["rules"]


async def test_a_key_typed_before_the_next_hunk_was_seen_decides_nothing(
    proposed: Proposed, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Driver(proposed[1]) as d:
        await d.press("right_square_bracket")
        await d.pilot.press("a")
        await d.settle()
        assert list(d.decisions().values()).count(DecisionKind.ACCEPTED) == 1
        monkeypatch.setattr("cubridge_tui.screens.base.GRACE", 60.0)
        await d.pilot.press("a")  # when the next hunk has just appeared
        await d.settle()
        assert list(d.decisions().values()).count(DecisionKind.ACCEPTED) == 1
        assert "ignored: the hunk was not on the screen yet" in d.status()


async def test_linked_panes_mark_the_same_op(proposed: Proposed) -> None:
    async with Driver(proposed[1]) as d:
        await d.press("A")
        grid, snap = d.screen.grid, d.screen.snap
        assert snap is not None
        grid.lead(Stage.SOURCE)
        await d.settle()
        rows = grid.panes[Stage.SOURCE].content.rows
        at = next(i for i, r in enumerate(rows) if "gemm(s, sQ" in r.text)
        grid.panes[Stage.SOURCE].go_to(at)
        await d.press("f")
        for stage in (Stage.LIFTED, Stage.TARGET):
            pane = grid.panes[stage]
            assert pane.row is not None
            assert "gemm(s, sQ, transpose(sK[step % STAGES]))" in pane.row.text
        marked = grid.panes[Stage.LIFTED]._links
        texts = {
            s: [
                grid.panes[Stage.LIFTED].content.rows[i].text.strip()
                for i in marked
                if marked[i] == s
            ]
            for s in ("op", "loop", "worker")
        }
        assert texts["op"] == ["gemm(s, sQ, transpose(sK[step % STAGES]))"]
        assert "m_prev = m" in texts["loop"] and "for step in range(tiles):" in texts["loop"]
        assert "l = row_reduce(l)" in texts["worker"]


async def test_an_edit_that_does_not_parse_stays_a_draft_with_its_error(
    proposed: Proposed,
) -> None:
    async with Driver(proposed[1]) as d:
        screen = d.screen
        name = d.hunk("scale_log2 =")
        await d.press(*["right_square_bracket"] * (int(name.rpartition("h")[2])))
        assert screen.current_hunk() == name
        screen._edited(name, "scale_log2 = = 1")
        await d.settle()
        assert d.decisions()[name.rpartition("/")[2]] is None
        assert "draft" in d.status()
        assert screen.snap is not None and name in screen.snap.drafts
        heads = [r.text for r in screen.grid.panes[Stage.TARGET].content.rows if r.hunk == name]
        assert "DRAFT" in heads[0]
        assert f"draft of {name} not applied" in d.text
        await d.press("A")  # as proposed: no step takes the draft up
        assert d.decisions()[name.rpartition("/")[2]] is DecisionKind.ACCEPTED
        assert "Run G2" in d.text and f"draft of {name} not applied" in d.text
        screen._edited(name, "scale_log2 = LOG2E * 1.0")
        await d.settle()
        assert d.decisions()[name.rpartition("/")[2]] is DecisionKind.EDITED
        assert screen.snap.drafts == {} and "not applied" not in d.text
        rows = screen.grid.panes[Stage.TARGET].content.rows
        mine = [r for r in rows if r.hunk == name and r.kind is RowKind.ADD]
        assert [(r.text.strip(), r.origin, r.sign) for r in mine] == [
            ("scale_log2 = LOG2E * 1.0", "person", "~")
        ]
        assert d.screen.snap is not None and d.screen.snap.diff_blocked == ""


async def test_failed_gate_leads_to_the_suspect_with_the_counterexample(
    proposed: Proposed,
) -> None:
    async with Driver(proposed[1]) as d:
        screen = d.screen
        desk = screen.open_desk
        name = d.hunk("s = map(s,")
        screen.job("decide", lambda: desk.decide(name, DecisionKind.REJECTED), quiet=True)
        await d.settle()
        await d.press("A")
        example = {"b": 0, "h": 1, "i": 2, "expected": 1.5, "got": float("nan")}
        verdict = verdict_of(
            desk.work,
            Gate.G2,
            VerdictKind.FAIL,
            "O is wrong: smem[threadIdx.x][/ 2]",
            {"counterexample": example},
        )
        screen.job("give", lambda: (desk.work.give(verdict), desk.snapshot())[1], quiet=True)
        await d.settle()
        assert "G2 failed" in d.text and "✗ fail" in d.text
        await d.press("enter")
        assert isinstance(d.app.screen, TextDialog)
        shown = d.text
        assert "smem[threadIdx.x][/ 2]" in shown
        assert f"here ▶     {name}" in shown and "counterexample" in shown
        await d.press("escape")
        assert screen.current_hunk() == name


@pytest.mark.parametrize(
    ("size", "panes"),
    [((80, 24), 1), ((120, 40), 2), ((139, 40), 2), ((160, 48), 3), ((300, 80), 3)],
)
async def test_layout_by_width(proposed: Proposed, size: tuple[int, int], panes: int) -> None:
    async with Driver(proposed[1], size) as d:
        shown = [p for p in d.screen.grid.panes.values() if p.display]
        assert len(shown) == panes
        assert all(p.size.width >= 58 for p in shown)
        assert ("tab" in d.text.split("\n")[-3]) == (panes < 4)
        await d.press("z")
        assert len([p for p in d.screen.grid.panes.values() if p.display]) == 1
        await d.press("z", "tab")
        assert d.screen.grid.focused_stage is Stage.LIFTED
        await d.pilot.resize_terminal(90, 30)
        await d.settle()
        assert len([p for p in d.screen.grid.panes.values() if p.display]) == 1


async def test_the_place_is_remembered(proposed: Proposed) -> None:
    async with Driver(proposed[1]) as d:
        await d.press("tab", "2", "d", "d")
        d.screen.grid.leader.go_to_line(40)
        await d.settle()
    kept = places.load(proposed[1])
    assert (kept.focus, kept.pair, kept.view) == ("lifted", 1, "side by side")
    async with Driver(proposed[1]) as d:
        assert d.screen.grid.focused_stage is Stage.LIFTED
        row = d.screen.grid.leader.row
        assert row is not None and row.number == 40
        assert d.screen.view.value == "side by side"


async def test_a_second_opener_is_read_only_and_follows(proposed: Proposed) -> None:
    with Store.open(proposed[0]).writer(proposed[1]) as other:
        async with Driver(proposed[1]) as d:
            assert "READ-ONLY" in d.text
            await d.press("right_square_bracket", "a")
            assert d.decisions()["h1"] is None
            assert "read-only" in d.status()
            from sessions.events import TitleSet

            other.append([TitleSet("renamed [/] elsewhere")], actor="other")
            d.screen._look()
            await d.settle()
            assert "renamed [/] elsewhere" in d.text
            await d.press("F")
            assert "READ-ONLY" not in d.text and "(copy)" in d.text
            await d.press("a")  # the cursor stands where it stood
            assert d.decisions()["h1"] is DecisionKind.ACCEPTED


async def test_a_session_of_ones_own_is_copied_at_the_same_place(proposed: Proposed) -> None:
    store, (_, session) = Store.open(proposed[0]), proposed
    before = store.load(session).commit
    async with Driver(session) as d:
        assert " F fork" not in d.text.split("\n")[-1], "it is seldom wanted"
        await d.press("tab", "j", "j", "2")
        number = d.screen.grid.leader.line
        await d.press("F")
        copy = d.screen.session
        assert copy != session and "(copy)" in d.text
        assert f"a copy of {session}" in d.status()
        assert d.screen.grid.focused_stage is Stage.LIFTED and d.screen.grid.leader.line == number
        await d.press("A")
        assert set(d.decisions().values()) == {DecisionKind.ACCEPTED}
    assert store.load(session).commit == before
    assert store.load(copy).state.decision("rules", "h1") is not None


async def test_a_session_that_is_not_saved_yet_is_not_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cubridge_tui.desk import choose
    from engine.service.session.workbench import find_spec

    monkeypatch.setenv("CUBRIDGE_STORE", str(tmp_path / "none.git"))
    async with Driver("") as d:
        d.app.open_session(choose("flash_fwd_sm80", find_spec("softcap_causal")))
        await d.settle()
        await d.press("F")
        assert "nothing to copy yet" in d.status()


async def test_a_store_that_cannot_be_written_is_a_banner_and_loses_nothing(
    proposed: Proposed, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sessions.git_store import GitDir

    async with Driver(proposed[1]) as d:

        def full(*_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(GitDir, "write", full)
            await d.press("right_square_bracket", "a")
            assert "NOT SAVED" in d.text
            assert d.decisions()["h1"] is DecisionKind.ACCEPTED
        d.screen._look()
        await d.settle()
        assert "NOT SAVED" not in d.text
    state = Store.open(proposed[0]).load(proposed[1]).state
    assert state.decision("rules", "h1") is not None


async def test_a_running_job_is_cancelled_and_quitting_waits_for_nothing(
    proposed: Proposed,
) -> None:
    import time

    async with Driver(proposed[1]) as d:
        started = threading.Event()

        def slow() -> None:
            from engine.errors import Interrupted

            started.set()
            while not d.app.bench.cancel.wait(0.01):
                pass
            raise Interrupted("stopped")

        d.screen.job("a slow gate", slow)
        await d.pilot.pause(0.1)
        assert started.is_set() and "a slow gate" in d.text and "ctrl+c" in d.text
        await d.pilot.press("a")
        assert "a slow gate is running" in d.status()
        await d.pilot.press("ctrl+c")
        await d.settle()
        assert "cancelled" in d.status()
        d.screen.job("another", slow)
        await d.pilot.pause(0.1)
        begin = time.monotonic()
        d.app.close()
        assert time.monotonic() - begin < 1.0


async def test_every_action_of_the_screen_is_a_method(proposed: Proposed) -> None:
    from cubridge_tui import actions

    async with Driver(proposed[1]) as d:
        for action in actions.actions_of(actions.ADAPTATION):
            name = "do_" + action.id.replace("-", "_")
            assert hasattr(d.screen, name) or hasattr(d.app, name), name


async def test_help_palette_recipe_inspector_and_log_open_and_close(proposed: Proposed) -> None:
    async with Driver(proposed[1]) as d:
        await d.press("question_mark")
        assert "Accept the hunk under the cursor" in d.text
        await d.press("escape", "r")
        assert "key j is kept where j <= i + Nk - Nq" in d.text
        await d.press("escape", "A", "i")
        assert "op inspector" in d.text
        await d.press("escape", "L")
        assert "log" in d.text
        await d.press("escape", "ctrl+p")
        await d.pilot.pause(1.0)
        assert "Next: run this stage's gate and move on" in d.text
        await d.press("escape", "T")
        assert d.app.theme == "cubridge-light"


async def test_the_review_is_exported_as_one_file(proposed: Proposed, tmp_path: Path) -> None:
    async with Driver(proposed[1]) as d:
        await d.press("A", "X", "enter")
        (page,) = tmp_path.glob("*.html")
        text = page.read_text()
        assert "Keep what the spec keeps" in text and "Content-Security-Policy" in text
        assert "<code>flash_fwd_sm80</code>" in text
        await d.press("X", "enter")
        await d.pilot.pause(0.4)  # a question that just came takes no answer
        await d.press("y")
        await settled(d.app, d.pilot)
        assert "any browser shows it" in d.status()


async def test_a_spec_changed_on_disk_is_a_banner_and_one_key(
    proposed: Proposed, tmp_path: Path, root: Path
) -> None:
    spec = tmp_path / "own.py"
    spec.write_bytes((root / "kernels/specs/softcap_causal.py").read_bytes())
    from cubridge_tui.desk import begin
    from engine.service.session.workbench import Bench

    with Bench(Store.open(proposed[0])) as bench:
        session = begin(bench, "flash_fwd_sm80", spec, "tester")
    async with Driver(session) as d:
        assert "changed on disk" not in d.text
        spec.write_text(spec.read_text().replace("50.0", "30.0"))
        d.screen._look()
        await d.settle()
        assert "The spec changed on disk" in d.text
        await d.press("exclamation_mark")
        assert "changed on disk" not in d.text


async def test_a_proposal_of_ones_own_is_decided_like_any_other(proposed: Proposed) -> None:
    async with Driver(proposed[1]) as d:
        await d.press("A")
        screen = d.screen
        desk = screen.open_desk
        assert screen.snap is not None
        text = screen.snap.target_text.replace("scale_log2 = ", "scale_log2 = 1.0 * ")
        assert text != screen.snap.target_text
        screen.job("propose", lambda: desk.propose(text), quiet=True)
        await d.settle()
        for _ in range(200):  # on a crowded machine a frame may come after the job
            if "Decide on 1 hunk" in d.text:
                break
            await d.pilot.pause(0.02)
        assert "Decide on 1 hunk" in d.text
        assert screen.snap.diff_blocked == ""
        screen.grid.lead(Stage.TARGET)
        await d.press("right_square_bracket")
        assert screen.current_hunk() == "person-1/h1"
        await d.press("a")
        assert screen.snap.target_text == text
        rows = screen.grid.panes[Stage.TARGET].content.rows
        assert [r.origin for r in rows if "1.0 * " in r.text] == ["person"]
        await d.press("u")
        assert "1.0 * " not in screen.snap.target_text


async def reject(d: Driver, name: str) -> None:
    """Reject one hunk by its name."""
    desk = d.screen.open_desk
    d.screen.job("decide", lambda: desk.decide(name, DecisionKind.REJECTED), quiet=True)
    await d.settle()


async def fail(d: Driver, gate: Gate, **details: object) -> None:
    """A gate fails on the present content."""
    desk = d.screen.open_desk
    verdict = verdict_of(desk.work, gate, VerdictKind.FAIL, "O is wrong", details)
    d.screen.job("give", lambda: (desk.work.give(verdict), desk.snapshot())[1], quiet=True)
    await d.settle()


async def test_of_several_hunks_none_is_named_before_the_one_that_why_goes_to(
    proposed: Proposed,
) -> None:
    """The likeliest is the one at the op that the gate names, which need not be the first."""
    async with Driver(proposed[1], (80, 24)) as d:
        first, likeliest = d.hunk("return max(0"), d.hunk("s = keep(s")
        for name in (first, likeliest):
            await reject(d, name)
        await d.press("A")
        rows = d.screen.grid.panes[Stage.TARGET].content.rows
        key = next(r.key for r in rows if r.hunk == likeliest and r.key is not None)
        snap = d.screen.snap
        assert snap is not None and snap.target is not None
        path = next(path for path, _ in walk(snap.target) if snap.target_names(path) == key)
        await fail(d, Gate.G2, op="/".join(map(str, path)))
        assert "w goes to the likeliest of 2 rejected hunks" in d.text
        await d.press("w")
        assert f"here ▶     {likeliest}" in d.text


async def test_why_shows_what_the_target_lacks_of_a_rejected_hunk(proposed: Proposed) -> None:
    """A hunk that only adds lines has none in the target: no line beside it is shown as its own."""
    async with Driver(proposed[1], (120, 40)) as d:
        await reject(d, d.hunk("score_factor ="))
        await d.press("A")
        await fail(d, Gate.G2, op="flash_fwd/24")
        await d.press("w")
        told = d.text.split("here ▶")[1].split("also")[0]
        assert "not in the target: score_factor =" in told and "line" not in told


async def test_why_goes_to_the_rejected_hunk_first_then_to_the_op_and_offers_the_way_out(
    proposed: Proposed,
) -> None:
    async with Driver(proposed[1], (80, 24)) as d:
        name = d.hunk("s = map(s,")
        await reject(d, name)
        await d.press("A")
        await fail(d, Gate.G2, op="flash_fwd/16")
        assert f"w goes to {name}, which you rejected" in d.text
        await d.press("w")
        assert f"here ▶     {name}" in d.text
        assert "esc closes" in d.text
        assert "also       the gate names the op flash_fwd/16" in d.text
        await asyncio.sleep(0.35)
        await d.press("escape")
        row = d.screen.grid.leader.row
        assert d.screen.grid.focused_stage is Stage.TARGET
        assert row is not None and row.hunk == name and row.kind is RowKind.HEAD
        await d.press("w")  # as the line above the panes says, however often it is pressed
        assert f"here ▶     {name}" in d.text
        await asyncio.sleep(0.35)
        await d.press("w")
        assert "here ▶     the gate names the op flash_fwd/16" in d.text
        snap, key = d.screen.snap, d.screen.grid.leader.row
        assert snap is not None and key is not None
        assert f"line {key.number}: {key.text.strip()[:30]}" in d.text
        await asyncio.sleep(0.35)
        await d.press("w")  # round again
        await asyncio.sleep(0.35)
        await d.press("a")
        assert d.screen.snap is not None
        assert d.decisions()[name.rpartition("/")[2]] is DecisionKind.ACCEPTED


async def test_accept_all_after_a_reject_is_one_stroke(proposed: Proposed) -> None:
    async with Driver(proposed[1]) as d:
        name = d.hunk("s = map(s,")
        await reject(d, name)
        rejected = d.decisions()
        await d.press("A")
        accepted = d.decisions()
        count = len(accepted) - 1
        assert list(accepted.values()).count(DecisionKind.ACCEPTED) == count
        assert f"undo accept {count} hunks" in d.text
        await d.press("u")
        assert d.decisions() == rejected
        assert f"undone: accepted {count} hunks" in d.status()
        assert f"undo reject {name}" in d.text
        await d.press("U")
        assert d.decisions() == accepted
        await d.press("u", "u")
        assert set(d.decisions().values()) == {None}
    from sessions import replay

    lines = list(replay.lines(Store.open(proposed[0]).load(proposed[1]).events))
    assert f"undid: rejected {name}" in lines[-1]


async def test_every_view_shows_every_hunk(proposed: Proposed) -> None:
    async with Driver(proposed[1]) as d:
        assert d.screen.snap is not None
        every = {f"{p.id}/{h.id}" for p, h, _ in d.screen.snap.hunks}
        await reject(d, d.hunk("s = map(s,"))

        def heads() -> list[str]:
            rows = d.screen.grid.panes[Stage.TARGET].content.rows
            return [r.hunk for r in rows if r.kind is RowKind.HEAD]

        for keys in ((), ("A",)):
            await d.press(*keys)
            for _ in range(3):
                assert set(heads()) == every and len(heads()) == len(every), d.screen.view
                await d.press("d")
        await d.press("d", "d")
        assert d.screen.view is View.TEXT and "reasons come back with d" in d.status()


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_the_bar_always_has_every_gate_and_the_level(
    proposed: Proposed, size: tuple[int, int]
) -> None:
    async with Driver(proposed[1], size) as d:
        await d.press("A")
        for gate in (Gate.G2, Gate.G3):
            await fail(d, gate)
            bar = d.text.split("\n")[0]
            assert all(str(g) in bar for g in Gate), bar
            assert bar.rstrip().endswith("level none"), bar
            assert "✗" in bar and "softcap_causal on " in bar


async def test_run_ends_on_the_pane_that_it_made(proposed: Proposed) -> None:
    async with Driver(proposed[1], (80, 24)) as d:
        d.screen._ran()
        await d.settle()
        assert d.screen.grid.focused_stage is Stage.TARGET
        assert d.screen.current_hunk() == "rules/h1"


async def test_the_cursor_stays_in_sight_at_any_size(proposed: Proposed) -> None:
    async with Driver(proposed[1], (160, 48)) as d:
        pane = d.screen.grid.leader
        pane.go_to(25)
        for size in ((80, 24), (300, 80), (80, 30), (139, 24), (160, 60), (80, 24)):
            await d.pilot.resize_terminal(*size)
            await d.settle()
            top, height = pane.scroll_offset.y, pane.scrollable_content_region.height
            assert top <= pane.cursor < top + height, size


async def test_looking_at_a_choice_leaves_no_session(proposed: Proposed) -> None:
    app = CuBridgeApp()
    before = [s.id for s in app.store.sessions()]
    async with app.run_test(size=(120, 40), notifications=True, tooltips=True) as pilot:
        await settled(app, pilot)
        await pilot.press("tab", "tab", "s")
        await settled(app, pilot)
        assert isinstance(app.action_screen, AdaptationScreen)
        assert "Lift the source" in screen_text(app)
        await pilot.press("B")
        await settled(app, pilot)
        assert [s.id for s in app.store.sessions()] == before
        await pilot.press("s")
        await settled(app, pilot)
        screen = app.action_screen
        assert isinstance(screen, AdaptationScreen)
        desk = screen.open_desk
        from sessions.events import Note

        desk.work.writer.append([Note("first")], actor="ana")
        screen.job("look", desk.snapshot, quiet=True)
        await settled(app, pilot)
        assert len(app.store.sessions()) == len(before) + 1
        assert screen.session == desk.id != ""
    app.close()


async def test_a_click_on_the_footer_does_what_its_key_does(proposed: Proposed) -> None:
    from cubridge_tui.widgets.line import KeyBar

    async with Driver(proposed[1]) as d:
        bar = d.screen.query_one(KeyBar)
        at = bar.text.index("accept all")
        assert bar.action_at(at) == "accept-origin" and bar.action_at(10_000) == ""
        await asyncio.sleep(0.2)
        await d.pilot.click(KeyBar, offset=(at, 0))
        await d.settle()
        assert set(d.decisions().values()) == {DecisionKind.ACCEPTED}


async def test_a_click_where_another_key_stood_a_moment_ago_does_nothing(
    proposed: Proposed, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cubridge_tui.widgets.line import KeyBar, Line

    async with Driver(proposed[1]) as d:
        bar = d.screen.query_one(KeyBar)
        at, keys = bar.text.index("accept all"), bar._keys
        monkeypatch.setattr("cubridge_tui.widgets.line.GRACE", 60.0)
        bar.keys(())  # as while another screen stands over this one
        bar.keys(keys)
        await d.pilot.click(KeyBar, offset=(at, 0))
        await d.settle()
        said = d.screen.query_one("#status", Line).text
        assert said == " click ignored: `accept all` was not there yet; look, then click again"
        assert DecisionKind.ACCEPTED not in d.decisions().values()
        bar.keys(keys[:-1])  # the footer changed, but not there
        await d.pilot.click(KeyBar, offset=(at, 0))
        await d.settle()
        assert set(d.decisions().values()) == {DecisionKind.ACCEPTED}


async def test_earlier_proposals_can_be_read(proposed: Proposed) -> None:
    async with Driver(proposed[1]) as d:
        name = d.hunk("s = map(s,")
        await reject(d, name)
        await d.press("A")
        desk = d.screen.open_desk
        assert d.screen.snap is not None
        text = d.screen.snap.target_text.replace("scale_log2 = ", "scale_log2 = 1.0 * ")
        d.screen.job("propose", lambda: desk.propose(text), quiet=True)
        await d.settle()
        await d.press("P")
        assert "person-1" in d.text and "1 rejected" in d.text
        await d.press("j", "enter")
        assert "rules, read-only" in d.text
        dialog = d.app.screen
        assert isinstance(dialog, TextDialog)
        rows = dialog.query_one(CodePane).content.rows
        assert any(r.kind is RowKind.HEAD and "rejected" in r.text for r in rows)
        assert any("s = map(s," in r.text and r.kind is RowKind.ADD for r in rows)


async def test_a_comment_decides_nothing_and_outlives_decisions(proposed: Proposed) -> None:
    """On an undecided hunk it stays undecided; a decision, its undo and another one keep it."""
    async with Driver(proposed[1]) as d:
        await d.press("right_square_bracket")
        name = d.screen.current_hunk()
        before = d.decisions()

        def head() -> str:
            rows = d.screen.grid.panes[Stage.TARGET].content.rows
            return next(r.text for r in rows if r.kind is RowKind.HEAD and r.hunk == name)

        await d.press("c", *"why", "enter")
        assert "it stays undecided" in d.status()
        assert d.decisions() == before and "undecided" in head() and "“why”" in head()
        assert d.screen.snap is not None and not d.screen.snap.undo_words
        d.screen._to_head(name)
        await d.press("a")
        assert "accepted" in head() and "“why”" in head()
        d.screen._to_head(name)
        await d.press("c", *"so", "enter")
        assert "it stays accepted" in d.status() and "“so”" in head()
        await d.press("u")
        assert d.decisions() == before and "“so”" in head()
        d.screen._to_head(name)
        await d.press("c", "backspace", "enter")
        assert "taken back" in d.status() and "“" not in head()
    events = Store.open(proposed[0]).load(proposed[1]).events
    said = [line for line in lines(events) if "comment" in line]
    assert [f"commented on {name}: why" in said[0], f"comment on {name} back" in said[2]] == [
        True
    ] * 2


@pytest.mark.parametrize("decision", ["", "x"])
async def test_every_view_shows_all_that_a_key_decides(proposed: Proposed, decision: str) -> None:
    """What an undecided or a rejected hunk would add and take away, in each of the views."""
    async with Driver(proposed[1], (160, 60)) as d:
        hunk = d.hunk("scale_log2 =")
        assert d.screen.snap is not None
        found = d.screen.snap.hunk(hunk)
        assert found is not None
        d.screen.grid.lead(Stage.TARGET)
        for _ in View:
            d.screen._to_head(hunk)
            if decision:
                await d.press(decision)
                decision = ""
                d.screen._to_head(hunk)
            rows = d.screen.grid.leader.content.rows
            mine = [r for r in rows if r.hunk == hunk]
            adds = [r.text.strip() for r in mine if r.kind in (RowKind.ADD, RowKind.OUT_ADD)]
            assert [x.strip() for x in found[1].after.split("\n") if x.strip()] == adds
            taken = {r.number for r in mine if r.kind is RowKind.DEL}
            made = d.screen.snap.decision(hunk)
            assert bool(taken) == (made is None and bool(found[1].before.strip()))
            numbers = [r.number for r in rows if r.number is not None]
            assert numbers == list(range(1, len(numbers) + 1))  # the target, whole, once
            await d.press("d")


async def test_side_by_side_equal_lines_stand_in_one_row_and_scroll_as_one(
    proposed: Proposed,
) -> None:
    async with Driver(proposed[1], (160, 40)) as d:
        await d.press("2", "d", "d", "A")
        assert d.screen.view is View.TEXT
        left, right = d.screen.grid.panes[Stage.LIFTED], d.screen.grid.panes[Stage.TARGET]
        pairs = list(zip(left.content.rows, right.content.rows, strict=True))
        same = [(a, b) for a, b in pairs if a.number and b.number and b.kind is RowKind.SAME]
        assert len(same) > 40 and all(a.text == b.text for a, b in same)
        assert any(a == FILLER for a, _ in pairs) and not any(a == b == FILLER for a, b in pairs)
        for keys in ("G", "right_square_bracket", "pageup", "home", "pagedown"):
            await d.press(keys)
            assert left.scroll_offset.y == right.scroll_offset.y
        await d.press("tab", "G")
        assert left.scroll_offset.y == right.scroll_offset.y


async def test_what_was_accepted_is_changed_only_after_a_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decisions of one and of all, their redo, an edit, and the stages made again."""
    session = placed(tmp_path / "store.git")
    store = Store.open(tmp_path / "store.git")
    monkeypatch.setenv("CUBRIDGE_STORE", str(store.path))
    async with Driver(session, (80, 24)) as d:
        desk = d.screen.open_desk
        d.screen.job("accept", desk.accept, quiet=True)
        await d.settle()
        committed = Committed("/theirs", "kernel.cu", "c" * 40)
        d.screen.job("commit", lambda: desk.writer.append([committed], actor="ana"), quiet=True)
        d.screen.job("look", desk.snapshot, quiet=True)
        await d.settle()

        def current() -> bool:
            assert d.screen.snap is not None
            return d.screen.snap.state.acceptance_is_current

        async def asked(question: str, answer: str) -> None:
            assert isinstance(d.app.screen, Confirm) and question in d.text
            whole = " ".join(d.text.split())
            assert "revokes the acceptance (cpu-verified, committed)" in whole
            await asyncio.sleep(2 * GRACE)
            await d.press(answer)

        d.screen.grid.lead(Stage.TARGET)
        await d.press("right_square_bracket")
        name, count = d.screen.current_hunk(), len(desk.writer.events)
        await asyncio.sleep(GRACE)
        await d.press("x")
        await asked(f"reject {name}?", "n")
        await d.press("D")
        await asyncio.sleep(2 * GRACE)
        await d.press("y")  # that the decisions go
        await asked("make the target again?", "n")
        d.screen._edited(name, "x = 1")
        await d.settle()
        await asked(f"edit {name}?", "n")
        assert d.screen._hunk_text(name) == "x = 1"  # kept
        assert current() and len(desk.writer.events) == count
        await d.press("x")
        await asked(f"reject {name}?", "y")
        assert not current()
        await d.press("u")  # which needs no question: it brings it back
        assert current()
        await d.press("U")
        await asked("make again: rejected", "n")
        assert current()


async def test_what_is_undone_and_made_again_is_shown_where_it_stands(proposed: Proposed) -> None:
    async with Driver(proposed[1]) as d:
        await d.press("right_square_bracket", "a", "a")
        first, second = [n for n, kind in d.decisions().items() if kind]
        await d.press("1", "end")  # another pane, far away
        assert not d.screen.current_hunk().endswith(f"/{second}")
        await d.press("u")
        assert d.screen.current_hunk() == f"rules/{second}" and "undone" in d.status()
        await d.press("u")
        assert d.screen.current_hunk() == f"rules/{first}"
        await d.press("G", "U")
        assert d.screen.current_hunk() == f"rules/{first}"
        await d.press("U")
        assert d.screen.current_hunk() == f"rules/{second}" and "made again" in d.status()
        await d.press("A", "end", "u")  # a stroke over many: where it begins
        assert d.screen.current_hunk() != "" and d.decisions()["h8"] is None
