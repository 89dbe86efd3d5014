"""V: another version of the kernel is looked at first, and taken when the person says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from cubridge_tui.screens.dialogs import GRACE, TextDialog
from engine.service.session.workbench import find_kernel
from engine.types import DecisionKind, Stage
from tests.cubridge_tui.made import placed
from tests.cubridge_tui.screens.test_adaptation import Driver

pytestmark = pytest.mark.usefixtures("no_warm_up")


async def test_another_version_is_shown_then_taken_and_asks_what_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = placed(tmp_path / "store.git", Stage.TARGET)
    monkeypatch.setenv("CUBRIDGE_STORE", str(tmp_path / "store.git"))
    text = find_kernel("flash_fwd_sm80").source.decode()
    new = tmp_path / "new.cu"
    new.write_text(text.replace("return j < args.Nk;", "return j < args.Nk && i < args.Nq;"))
    assert new.read_text() != text
    async with Driver(session) as d:
        await d.press("V")
        d.app.screen.query_one("Input").value = str(tmp_path / "nowhere.cu")  # type: ignore[attr-defined]
        await d.press("enter")
        assert "there is no such file" in d.status() and d.screen.snap is not None
        source = d.screen.snap.state.hashes["source"]
        await d.press("V")
        d.app.screen.query_one("Input").value = str(new)  # type: ignore[attr-defined]
        await d.press("enter")
        assert isinstance(d.app.screen, TextDialog)
        assert "1 change" in d.text and "Keep what the spec keeps" in d.text
        assert d.screen.snap.state.hashes["source"] == source  # nothing is done yet
        await d.pilot.pause(2 * GRACE)  # no answer before it could be read
        await d.press("r")
        state = d.screen.snap.state
        assert state.hashes["source"] != source and "1 asked" in d.status()
        undecided = [name for name, kind in d.decisions().items() if kind is None]
        assert len(undecided) == 1 and d.screen.current_hunk().endswith(undecided[0])
        assert set(d.decisions().values()) == {None, DecisionKind.ACCEPTED}
        assert "Decide on 1 hunk" in d.text or "Lift" in d.text


async def test_a_kernel_that_changed_on_disk_is_taken_in_with_what_was_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = placed(tmp_path / "store.git", Stage.TARGET)
    monkeypatch.setenv("CUBRIDGE_STORE", str(tmp_path / "store.git"))
    package = find_kernel("flash_fwd_sm80")
    new = tmp_path / "kernel.cu"
    new.write_bytes(package.source)
    async with Driver(session) as d:
        desk = d.screen.open_desk
        d.screen.job("rebase", lambda: desk.rebase(desk.newer(str(new))), quiet=True)
        await d.settle()
        new.write_bytes(package.source.replace(b"STAGES = 2", b"STAGES = 3"))
        await d.press("exclamation_mark")
        assert isinstance(d.app.screen, TextDialog) and "0 asked" in d.text
        await d.pilot.pause(2 * GRACE)  # no answer before it could be read
        await d.press("r")
        assert set(d.decisions().values()) == {DecisionKind.ACCEPTED}
        assert d.screen.snap is not None and not d.screen.snap.changed
        # What no rule carries is not carried over; it can be taken in all the same.
        new.write_bytes(package.source.replace(b"row_max(s, m)", b"row_sum(s, m)"))
        await d.press("exclamation_mark")
        assert "all the same?" in d.text
        await d.pilot.pause(2 * GRACE)
        await d.press("y")
        assert "is taken in" in d.status() and d.screen.snap.diff_blocked
