"""What the app says where a key or a step did not do what was wanted: all of it, while it is so."""

from __future__ import annotations

import asyncio
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from cubridge_tui.app import CuBridgeApp
from cubridge_tui.desk import Desk, begin
from cubridge_tui.screens.base import GRACE
from cubridge_tui.screens.dialogs import Confirm, TextDialog
from cubridge_tui.widgets.line import KeyBar
from engine.errors import InputError, LowerError, SpecError, Where
from engine.service.session.adaptation import Adaptation
from engine.service.session.session_options import choose_options
from engine.service.session.workbench import Bench, find_kernel, find_spec
from engine.types import DecisionKind, Stage
from sessions.store import Store
from tests.cubridge_tui.conftest import screen_text, settled
from tests.cubridge_tui.made import TableChild, placed
from tests.cubridge_tui.screens.test_adaptation import Driver
from tests.engine.transfer.recipes import VARIANTS

pytestmark = pytest.mark.usefixtures("no_warm_up")


async def test_keys_that_come_too_soon_are_counted_aloud(
    proposed: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Driver(proposed[1], (80, 24)) as d:
        await d.press("right_square_bracket")
        await d.press("a")
        assert list(d.decisions().values()).count(DecisionKind.ACCEPTED) == 1
        monkeypatch.setattr("cubridge_tui.screens.base.GRACE", 60.0)
        await d.press("a", "a")
        assert list(d.decisions().values()).count(DecisionKind.ACCEPTED) == 1
        assert "2 keys ignored: the hunk was not on the screen yet" in d.text
        monkeypatch.setattr("cubridge_tui.screens.base.GRACE", 0.0)
        await d.press("a")
        assert list(d.decisions().values()).count(DecisionKind.ACCEPTED) == 2
        assert "ignored" not in d.text


async def test_that_something_runs_is_said_only_while_it_does(proposed: tuple[Path, str]) -> None:
    async with Driver(proposed[1]) as d:
        go_on = threading.Event()
        d.screen.job("a slow gate", lambda: go_on.wait(10))
        await d.pilot.pause(0.05)
        await d.pilot.press("s")
        assert "a slow gate is running" in d.text
        go_on.set()
        await d.settle()
        assert "is running" not in d.text


def own_spec(folder: Path) -> Path:
    spec = folder / "own.py"
    spec.write_bytes(find_spec("softcap_causal").read_bytes())
    return spec


async def test_a_changed_spec_is_taken_in_before_anything_is_proposed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.service.session.adaptation import Adaptation, start

    spec, store = own_spec(tmp_path), Store.open(tmp_path / "store.git")
    package = find_kernel("flash_fwd_sm80")
    with Bench(store, child=TableChild(VARIANTS["softcap_causal"])) as bench:  # type: ignore[arg-type]
        session = start(bench, package, spec, choose_options(package), "tester")
        with store.writer(session) as writer:
            Adaptation(bench, writer, "tester").lift()
    monkeypatch.setenv("CUBRIDGE_STORE", str(store.path))
    async with Driver(session, (80, 24)) as d:
        child = d.app.bench.child = TableChild(VARIANTS["softcap_causal"])  # type: ignore[assignment]
        spec.write_text(spec.read_text() + "\n# mended\n")
        await d.press("s")  # before the change was noticed: the step itself refuses
        assert "own.py changed on disk" in d.text
        assert "recipe" not in child.calls
        assert "Next: !" in d.text
        await d.press("s")
        assert "! takes it in" in d.status()
        await d.press("w")
        assert "takes the change in; or restore it" in d.text
        await d.press("escape", "exclamation_mark")
        assert "Next: s" in d.text
        await d.press("s")
        assert "recipe" in child.calls
        assert d.decisions()


class Refusing(TableChild):
    """A child that reads no spec."""

    def call(self, name: str, payload: dict[str, Any], **more: Any) -> dict[str, Any]:
        if name == "recipe":
            words = "the scores are multiplied by a mask of an unknown kind, " * 3
            raise SpecError(
                words + "and that is the end", where=Where("own.py", 12), fix="write torch.where"
            )
        return super().call(name, payload, **more)


async def test_a_refused_spec_is_read_whole_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = placed(tmp_path / "store.git", Stage.LIFTED)
    monkeypatch.setenv("CUBRIDGE_STORE", str(tmp_path / "store.git"))
    async with Driver(session, (80, 24)) as d:
        d.app.bench.child = Refusing(VARIANTS["softcap_causal"])  # type: ignore[assignment]
        await d.press("s")
        assert "Next: w" in d.text.replace("  ", " ")
        assert "did not work: w shows why and the fix" in d.text
        await d.press("tab", "w")  # another key later, it can still be read
        shown = d.text
        assert "own.py:12" in shown
        assert "and that is the end" in shown.replace("\n", " ")
        assert "fix: write torch.where" in shown
        await d.press("escape")
        assert "Next: w" in d.text.replace("  ", " ")
        d.app.bench.child = TableChild(VARIANTS["softcap_causal"])  # type: ignore[assignment]
        await d.press("s")
        assert "did not work" not in d.text
        assert d.decisions()


async def test_the_log_opens_at_its_newest_line() -> None:
    app = CuBridgeApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(app, pilot)
        app.jobs.log.extend(f"line {n}" for n in range(200))
        await pilot.press("L")
        await pilot.pause()
        assert isinstance(app.screen, TextDialog)
        assert "line 199" in screen_text(app)
        assert "line 3 " not in screen_text(app)
    app.close()


async def test_a_spec_that_does_not_parse_is_listed_as_such(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def attention(q, k, v:\n    return q\n")
    (tmp_path / "other.py").write_text("def something(:\n")
    app = CuBridgeApp()
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(app, pilot)
        assert "./broken.py" in screen_text(app)
        assert "does not parse: line 1" in screen_text(app)
        assert "other.py" not in screen_text(app)
        await pilot.press("s")
        await settled(app, pilot)
        assert "mend it, then r looks again" in screen_text(app)
        assert app.action_screen is app.screen
        (tmp_path / "broken.py").write_bytes(find_spec("softcap_causal").read_bytes())
        await pilot.press("r")
        assert "does not parse" not in screen_text(app)
    app.close()


async def test_a_change_that_nobody_looked_at_yet_is_seen_by_the_keys_that_it_matters_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right after saving: ! takes it in and says so; R, s and D ask before they work without it."""
    spec = own_spec(tmp_path)
    session = placed(tmp_path / "store.git", Stage.TARGET)
    monkeypatch.setenv("CUBRIDGE_STORE", str(tmp_path / "store.git"))
    async with Driver(session, (80, 24)) as d:
        desk = d.screen.open_desk
        desk.work.spec = spec
        d.screen.job("take in", desk.take_in, quiet=True)
        await d.settle()
        d.screen.seen_disk = d.screen._disk()
        begun: list[str] = []
        monkeypatch.setattr(type(desk), "redo_from", lambda *a: begun.append("D"))
        monkeypatch.setattr(type(desk), "run", lambda *a: begun.append("R"))
        monkeypatch.setattr(d.screen, "_look", lambda: None)
        for n, key in enumerate(("D", "R", "exclamation_mark")):
            spec.write_text(spec.read_text() + f"\n# {n}\n")
            await d.press(key)
            if key == "exclamation_mark":
                assert "is taken in" in d.status()
                assert d.screen.snap is not None and not d.screen.snap.changed
            else:
                assert "changed on disk" in " ".join(d.text.split())
                if isinstance(d.app.screen, Confirm):
                    await asyncio.sleep(2 * GRACE)
                    await d.press("n")
        assert not begun
        await d.press("exclamation_mark")
        assert "nothing changed on disk" in d.status()


@pytest.mark.parametrize("changed", ["spec", "kernel"])
def test_lowering_what_changed_on_disk_is_refused_by_the_desk_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    """Whatever the screen has seen: a file may change between its look and the step."""
    spec, folder = own_spec(tmp_path), tmp_path / "flash_fwd_sm80"
    shutil.copytree(find_kernel("flash_fwd_sm80").folder, folder)
    begun: list[str] = []

    def lower(work: Adaptation) -> None:
        begun.append("lower")
        raise LowerError("as far as this test goes")

    monkeypatch.setattr(Adaptation, "lower", lower)
    monkeypatch.setattr(Adaptation, "cannot_lower", lambda work, error: None)
    with Bench(Store.open(tmp_path / "store.git")) as bench:
        session = begin(bench, str(folder), spec, "tester")
        desk = Desk(bench, session, "tester", {})
        file = spec if changed == "spec" else folder / "kernel.cu"
        file.write_bytes(file.read_bytes() + b"\n")
        with pytest.raises(InputError, match="changed on disk"):
            desk.redo_from(Stage.LOWERED)
        assert not begun
        desk.redo_from(Stage.LOWERED, True)
        assert begun == ["lower"]
        desk.close()


async def test_no_key_of_the_screen_behind_is_shown_while_a_dialog_is_open(
    proposed: tuple[Path, str],
) -> None:
    async with Driver(proposed[1]) as d:
        bar = d.screen.query_one(KeyBar)
        before = bar.text
        assert "help" in before
        for opens in ("w", "i", "question_mark", "L", "P", "ctrl+p"):
            await d.press(opens)
            assert d.app.screen is not d.screen
            d.screen.tell()  # a job's news
            await d.settle()
            assert bar.text == "", opens
            await d.press("escape")
            await d.settle()
            assert d.app.screen is d.screen and bar.text == before, opens


async def test_while_a_session_is_being_opened_a_key_says_so_and_nothing_of_its_content(
    proposed: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    go, snapshot = threading.Event(), Desk.snapshot

    def slow(desk: Desk) -> Any:
        assert go.wait(60)
        return snapshot(desk)

    monkeypatch.setattr(Desk, "snapshot", slow)
    app = CuBridgeApp(session=proposed[1])
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause(0.2)
        for key in ("o", "K", "s", "right_square_bracket"):
            await pilot.press(key)
            assert "the session is being opened" in screen_text(app), key
            assert "no proposal" not in screen_text(app)
        go.set()
        await settled(app, pilot)
        await pilot.press("o")
        await settled(app, pilot)
        assert "hunks: title, clause" in screen_text(app)
    app.close()
