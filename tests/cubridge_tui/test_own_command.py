"""A command is named one way: as it is typed where the person is, whatever shows it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cubridge_tui import console
from cubridge_tui.cli import COMMANDS
from cubridge_tui.console import typeable
from engine.types import Stage
from sessions.store import Store
from tests.cubridge_tui.made import ACTOR, bench_of, placed
from tests.cubridge_tui.screens.test_adaptation import Driver

Run = Callable[..., "subprocess.CompletedProcess[str]"]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A session whose G4 was not run: its reason names a command."""
    from engine.service.session.adaptation import Adaptation

    path = tmp_path / "store.git"
    monkeypatch.setenv("CUBRIDGE_STORE", str(path))
    session = placed(path, Stage.LOWERED)
    store = Store.open(path)
    with bench_of(store) as bench, store.writer(session) as writer:
        Adaptation(bench, writer, ACTOR).skip_gpu()
    return session


def test_text_and_json_name_it_the_same_way(skipped: str, tmp_path: Path, cubridge: Run) -> None:
    nowhere = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    own = f"{ROOT / 'dev'} run verify"
    shown = cubridge("sessions", "show", skipped, environ=nowhere).stdout
    told = cubridge("sessions", "show", skipped, "--json", environ=nowhere).stdout
    reason = json.loads(told)["verdicts"][-1]["reason"]
    assert own in reason and own in shown
    assert "`cubridge " not in shown + told
    replayed = cubridge("replay", skipped, environ=nowhere).stdout
    assert own in replayed and "`cubridge " not in replayed
    (tmp_path / "cubridge").write_text("#!/bin/sh\n")
    (tmp_path / "cubridge").chmod(0o755)
    for words in ((), ("--json",)):
        shown = cubridge("sessions", "show", skipped, *words, environ=nowhere).stdout
        assert "`cubridge verify SESSION`" in shown and "run verify" not in shown
    # What is kept travels: it has the program's own name.
    store = Store.open(tmp_path / "store.git")
    assert "`cubridge verify SESSION`" in store.load(skipped).state.verdicts[-1].reason


def test_each_command_is_translated_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "own_command", lambda: "./dev run")
    for name in COMMANDS:
        assert typeable(f"try cubridge {name} X") == f"try ./dev run {name} X"
    assert typeable("`cubridge --session X`: s goes on") == "`./dev run --session X`: s goes on"
    assert typeable("`cubridge` starts it") == "`./dev run` starts it"
    for text in (
        "/home/ana/cubridge verify.log", "cubridge-tui lift", "cubridge adapter", "my.cubridge gpu",
        "namespace cubridge {", "pip install cubridge",
    ):  # fmt: skip
        assert typeable(text) == text


def test_a_source_is_shown_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "own_command", lambda: "./dev run")
    text = "// cubridge lift x"
    console.show_source(text)
    console.show_json({"cuir": text, "source": text, "stages": [{"reason": "cubridge lift x"}]})
    lines, made = capsys.readouterr().out.split("\n", 1)
    assert lines == text
    shown = json.loads(made)
    assert shown["cuir"] == shown["source"] == text
    assert shown["stages"] == [{"reason": "./dev run lift x"}]


async def test_the_app_names_it_the_same_way(
    skipped: str, no_warm_up: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "own_command", lambda: "./dev run")
    async with Driver(skipped, (160, 48)) as d:
        d.screen.say("cubridge doctor says more")
        await d.settle()
        assert "./dev run doctor says more" in d.text
        await d.press("K")
        assert "./dev run verify" in d.text and "cubridge verify" not in d.text
        await d.press("escape")
        d.app.warnings.append("see `cubridge config`")
        await d.press("L")
        assert "see `./dev run config`" in d.text
