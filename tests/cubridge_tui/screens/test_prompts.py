"""Every one-line prompt shows its text, and a text that was there already is replaced by typing."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest
from textual.widgets import Input

from cubridge_tui.app import CuBridgeApp
from cubridge_tui.screens.accept import AcceptScreen, odd_parent, unfit
from cubridge_tui.screens.commit import CommitScreen
from cubridge_tui.screens.dialogs import GRACE, Confirm, Prompt
from engine.service.session.package_export import package_name
from engine.types import Stage
from tests.cubridge_tui.conftest import screen_text, settled
from tests.cubridge_tui.made import placed
from tests.cubridge_tui.screens.test_adaptation import Driver

pytestmark = pytest.mark.usefixtures("no_warm_up")
SIZES = ((80, 24), (120, 40), (200, 60))


@pytest.mark.parametrize("size", SIZES)
async def test_what_is_typed_is_on_the_screen(size: tuple[int, int]) -> None:
    app = CuBridgeApp()
    async with app.run_test(size=size) as pilot:
        await settled(app, pilot)
        app.push_screen(Prompt("The title:", "as it was", lambda _: "this is why not"))
        await pilot.pause()
        assert app.screen.query_one(Input).size.height == 1
        shown = screen_text(app)
        assert all(w in shown for w in ("The title:", "as it was", "typing replaces it"))
        assert "as it was" in app.export_screenshot().replace("&#160;", " ")
        await pilot.press(*"new")
        assert "new" in screen_text(app)
        assert "as it was" not in screen_text(app)
        await pilot.press("enter")
        await pilot.pause()
        assert all(w in screen_text(app) for w in ("new", "this is why not", "esc leaves"))
    app.close()


async def test_end_keeps_the_text() -> None:
    app = CuBridgeApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(app, pilot)
        app.push_screen(Prompt("The title:", "12 34"))
        await pilot.pause()
        await pilot.press("end", "5")
        assert "12 345" in screen_text(app)
    app.close()


async def test_the_prompts_of_the_panes_show_what_is_typed(proposed: tuple[Path, str]) -> None:
    async with Driver(proposed[1], (80, 24)) as d:
        await d.press("slash", *"acc_o")
        assert "acc_o" in d.text.split("Search in all panes")[1]
        await d.press("escape", "right_square_bracket", "c", *"whyso")
        assert "whyso" in d.text
        await d.press("escape", "m", "S", *"77")
        assert "77" in d.text.split("with a blank between")[1]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "theirs"
    folder.mkdir()
    for words in (["init", "-q"], ["config", "user.name", "T"], ["config", "user.email", "t@t.t"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return folder


async def test_the_commit_path_is_seen_replaced_and_questioned(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store.git"
    session = placed(store, Stage.VERIFIED)
    monkeypatch.setenv("CUBRIDGE_STORE", str(store))
    monkeypatch.chdir(repository)
    async with Driver(session, (120, 40)) as d:
        d.app.push_screen(AcceptScreen(d.screen))
        await d.settle()
        await d.press("A", "C")
        assert package_name(session) in d.text
        for key in "bad.cu/mine.cu":
            await d.pilot.press({"/": "slash", ".": "full_stop"}.get(key, key))
        assert "bad.cu/mine.cu" in d.text
        assert package_name(session) not in d.text.split("as this folder")[1]  # replaced
        await d.press("enter")
        assert isinstance(d.app.screen, Confirm)
        assert "bad.cu looks like a file's name" in d.text
        await asyncio.sleep(2 * GRACE)  # no answer before it could be read
        await d.press("n")
        assert "bad.cu/mine.cu" in d.text  # to be mended, not typed again
        for key in "mine.cu":
            await d.pilot.press({".": "full_stop"}.get(key, key))
        await d.press("enter")
        assert isinstance(d.app.screen, CommitScreen)
        assert "mine.cu" in d.text
    assert not (repository / "bad.cu").exists()


def test_paths_that_cannot_be_meant(tmp_path: Path) -> None:
    (tmp_path / "kernel.cu").write_text("x")
    (tmp_path / "v1.cu").mkdir()
    assert "path is needed" in unfit("  ")
    assert "is a folder" in unfit(str(tmp_path))
    assert "kernel.cu is a file" in unfit(str(tmp_path / "kernel.cu" / "a.cu"))
    assert unfit(str(tmp_path / "new" / "a.cu")) == "" and unfit(str(tmp_path / "new")) == ""
    assert odd_parent(tmp_path / "a.cu" / "home" / "b.cu") == tmp_path / "a.cu"
    assert odd_parent(tmp_path / "v1.cu" / "b.cu") is None
    assert odd_parent(tmp_path / "v1.2" / "b.cu") is None
