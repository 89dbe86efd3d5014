"""Quitting while compilers run: at once, with the terminal restored and none of them left."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from engine.build.tools.toolchain import find_toolchain
from engine.errors import MissingTool
from engine.gates.outcome import Found
from engine.service.session.adaptation import Adaptation
from engine.service.session.workbench import Bench
from engine.types import Gate
from sessions.store import Store
from tests.cubridge_tui.terminal import Terminal
from tests.engine.gates.g3_source.test_g3_process import processes_of

pytestmark = pytest.mark.xdist_group("terminal")  # in real time: one of these at once


def test_quitting_while_nvcc_runs_leaves_nothing(
    proposed: tuple[Path, str], tmp_path: Path
) -> None:
    try:
        real = find_toolchain().nvcc.path
    except MissingTool:
        pytest.skip("no nvcc here")
    store, session = proposed
    with Bench(Store.open(store)) as bench, bench.store.writer(session) as writer:
        work = Adaptation(bench, writer, "tester")
        work.accept_all(work.state.proposals[0])
        work.give(work.found(Gate.G2, time.monotonic(), Found(True, "the fixture")))
    slow = tmp_path / "cuda" / "bin" / "nvcc"
    slow.parent.mkdir(parents=True)
    slow.write_text(f'#!/bin/sh\ncase "$*" in *.cu*) sleep 60;; *) exec {real} "$@";; esac\n')
    slow.chmod(0o755)
    environment = {
        "CUBRIDGE_STORE": str(store), "CUDA_HOME": str(slow.parents[1]),
        "XDG_CACHE_HOME": str(tmp_path / "cache"), "QUIT_MARK": str(tmp_path),
    }  # fmt: skip
    mark = f"QUIT_MARK={tmp_path}"
    with Terminal(environment, 100, 30, ("--session", session), cwd=tmp_path) as terminal:
        terminal.wait_for("Lower to CUDA and run G3")
        terminal.type("s")
        deadline = time.monotonic() + 60
        while not any(b"sleep" in _words(pid) for pid in processes_of(mark)):
            assert time.monotonic() < deadline, terminal.text
            terminal.pump(0.1)
        begin = time.monotonic()
        os.write(terminal.master, b"q")
        assert terminal.ended() == 0
        took = time.monotonic() - begin
        assert took < 1.0 + 2.0 * (os.getloadavg()[0] > 2), took  # a busy machine gets longer
        assert terminal.restored
    deadline = time.monotonic() + 3
    while processes_of(mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes_of(mark) == []


def _words(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
