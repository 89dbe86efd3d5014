"""`cubridge lower`: only what the session was made from is lowered."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cubridge_tui.cli import main
from engine.service.session.adaptation import start
from engine.service.session.session_options import choose_options
from engine.service.session.workbench import Bench, find_kernel, find_spec
from sessions.store import Store


@pytest.mark.parametrize("changed", ["spec", "kernel"])
def test_what_changed_on_disk_is_not_lowered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changed: str
) -> None:
    spec, folder = tmp_path / "spec.py", tmp_path / "flash_fwd_sm80"
    shutil.copy(find_spec("softcap_causal"), spec)
    shutil.copytree(find_kernel("flash_fwd_sm80").folder, folder)
    store = tmp_path / "store.git"
    with Bench(Store.open(store)) as bench:
        package = find_kernel(str(folder))
        session = start(bench, package, spec, choose_options(package), "tester")
    events = len(Store.open(store).load(session).events)
    assert main(["lower", session, "--store", str(store)]) == 2  # nothing was proposed yet
    told = capsys.readouterr()
    assert told.out == "" and f"{session} has no target yet" in told.err
    file = spec if changed == "spec" else folder / "kernel.cu"
    file.write_bytes(file.read_bytes() + b"\n")
    assert main(["lower", session, "--store", str(store)]) == 2
    told = capsys.readouterr()
    assert told.out == "" and "changed" in told.err and "start a new session" in told.err
    assert len(Store.open(store).load(session).events) == events
