"""Importing a CUDA kernel from the start screen: what is asked, run and shown, and what follows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cubridge_tui import actions
from cubridge_tui.app import CuBridgeApp
from cubridge_tui.screens import bring
from cubridge_tui.screens.picker import Picker
from cubridge_tui.widgets.code_pane import CodePane
from engine.service.upkeep.own_command import Finished
from engine.types import Stage
from tests.cubridge_tui.conftest import screen_text, settled
from tests.cubridge_tui.made import placed

pytestmark = pytest.mark.usefixtures("no_warm_up")


@pytest.fixture(autouse=True)
def _places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "store.git"
    monkeypatch.setenv("CUBRIDGE_STORE", str(path))
    placed(path, Stage.SOURCE)


async def test_a_source_without_a_launcher_is_told_as_the_command_tells_it(tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "theirs.cu").write_text("__global__ void k(float* o) {}\n")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "other.cu").write_text("")
    app = CuBridgeApp()
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(app, pilot)
        await pilot.press("i")
        await settled(app, pilot)
        assert isinstance(app.screen, Picker)
        text = screen_text(app)
        assert "kernels/theirs.cu" in text and "other.cu" not in text
        await pilot.press("enter")
        await settled(app, pilot)
        assert "What does kernels/theirs.cu compute?" in screen_text(app)
        await pilot.press("enter")
        await settled(app, pilot)
        assert "import kernels/theirs.cu --reference" in screen_text(app)
        await pilot.press("enter")
        await settled(app, pilot)
        text = screen_text(app)
        assert "nothing was written" in text and "has no function named launch" in text
        assert (tmp_path / "kernels" / "launcher.cu").exists()  # the draft, as the command says
        await pilot.pause(0.4)
        await pilot.press("e")  # the same command, to be changed
        await settled(app, pilot)
        assert "import kernels/theirs.cu --reference" in screen_text(app)
    app.close()


async def test_an_imported_kernel_begins_a_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "theirs.cu").write_text("")
    ran: list[list[str]] = []
    chosen: list[tuple[str, str]] = []

    def run(words: list[str], *_: Any) -> Finished:
        ran.append(words)
        return Finished(0, "theirs.cu: G1 passes\ntheirs: written\n", 1.0)

    monkeypatch.setattr(bring, "run_cubridge", run)
    app = CuBridgeApp()
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(app, pilot)
        start = app.action_screen
        assert start is not None and start.NAME == actions.START
        monkeypatch.setattr(
            type(start), "choose", lambda _, kernel, spec, label: chosen.append((kernel, label))
        )
        for key in ("i", "enter", "enter"):
            await pilot.press(key)
            await settled(app, pilot)
        await pilot.press("end", *" --out mine", "enter")
        await settled(app, pilot)
        assert "theirs: written" in screen_text(app)
        await pilot.pause(0.4)
        for key in ("s", "enter"):
            await pilot.press(key)
            await settled(app, pilot)
    app.close()
    assert ran[0][:2] == ["import", "theirs.cu"] and ran[0][-2:] == ["--out", "mine"]
    assert chosen == [(str(tmp_path / "mine"), "softcap_causal")]


async def _picked(count: int, *keys: str) -> tuple[str | None, int | None]:
    """What `keys` choose of so many rows; the row under the cursor where they chose none yet."""
    app, chosen = CuBridgeApp(), list[str | None]()
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(app, pilot)
        picker = Picker("Which?", [(f"row{n}", "words") for n in range(1, count + 1)])
        app.push_screen(picker, chosen.append)
        await settled(app, pilot)
        for key in keys:
            await pilot.press(key)
        await settled(app, pilot)
        cursor = None if chosen else picker.query_one(CodePane).cursor + 1
    app.close()
    return (chosen[0] if chosen else None), cursor


@pytest.mark.parametrize(
    ("count", "keys", "chosen", "cursor"),
    [
        (3, "2", "row2", None),
        (3, "4", None, 1),  # no such row
        (3, "0", None, 1),
        (12, "1", None, 1),  # 10, 11 and 12 begin so
        (12, "12", "row12", None),
        (12, "10", "row10", None),
        (12, "13", None, 1),
        (12, "133", "row3", None),
        (120, "12", None, 12),
        (120, "120", "row120", None),
        (12, ["1", "down", "2"], "row2", None),  # the cursor went on: a number of its own
        (12, ["1", "enter"], "row1", None),
    ],
)
async def test_a_rows_number_chooses_it(
    count: int, keys: str | list[str], chosen: str | None, cursor: int | None
) -> None:
    assert await _picked(count, *keys) == (chosen, cursor)


async def test_what_is_offered_and_what_a_finding_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("deep/theirs.cu", "mine/theirs.cu", "env/some.cu", "other.cuh"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text("int a;\nint b;\nint c;\n")
    (tmp_path / "deep" / "own.py").write_text("def attention(q, k, v): ...\n")
    (tmp_path / "mine" / "kernel.toml").write_text("[compile]\n")
    (tmp_path / "env" / "pyvenv.cfg").write_text("")
    said = "deep/theirs.cu:2: race: reads (block 0, thread 1)\nwhy\n  fix: that\n"
    monkeypatch.setattr(bring, "run_cubridge", lambda *_: Finished(1, said, 1.0))
    app = CuBridgeApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(app, pilot)
        await pilot.press("i")
        await settled(app, pilot)
        text = screen_text(app)
        assert "deep/theirs.cu" in text and "mine/" not in text and "env/" not in text
        await pilot.press("slash")
        await settled(app, pilot)
        await pilot.press(*"nowhere", "enter")
        await settled(app, pilot)
        assert "no row has it, and no file has that name" in screen_text(app)
        await pilot.press("ctrl+u", *"other.cuh", "enter")  # a file that is not listed
        await settled(app, pilot)
        assert "What does other.cuh compute?" in screen_text(app)
        await pilot.press("slash")
        await settled(app, pilot)
        await pilot.press(*"deep/own", "enter")
        await settled(app, pilot)
        await pilot.press("enter")
        await settled(app, pilot)
        text = " ".join(screen_text(app).split())
        assert "own.py" in text and text.rindex("--arch sm_90a") > text.rindex("deep/own.py")
        await pilot.press("enter")
        await settled(app, pilot)
        await pilot.press("home")
        await settled(app, pilot)
        await pilot.press("enter")
        await settled(app, pilot)
        shown = app.screen.query_one(CodePane)
        assert "theirs.cu:2" in screen_text(app) and shown.cursor == 1
    app.close()
