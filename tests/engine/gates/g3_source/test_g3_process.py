"""G3 in another process: the same verdict, and an end that leaves nothing behind."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from engine.build.tools.toolchain import find_toolchain
from engine.child.wire import ChildEnded
from engine.errors import Interrupted, MissingTool
from engine.gates.g3_source.g3_process import judge_apart
from engine.gates.g3_source.lowering_check import judge_lowered
from engine.lift import lift
from engine.service.session.session_options import choose_options
from engine.service.session.workbench import find_kernel
from engine.types import UNFINISHED, VerdictKind


def processes_of(mark: str) -> list[int]:
    """Processes whose environment bears a mark."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                if mark.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def test_it_says_what_g3_says_in_this_process() -> None:
    package = find_kernel("flash_fwd_sm80")
    options = choose_options(package)
    lifted = lift(package, options.specialisation, options.arch)
    wrong = package.source.replace(b"__expf", b"__expg").replace(b"+ 1", b"+ 2", 1)
    assert wrong != package.source
    said: list[str] = []
    here = judge_lowered(package, lifted, lifted.module, wrong, options.arch, None, None)
    apart = judge_apart(
        package, lifted, lifted.module, wrong, options.arch, None, None, progress=said.append
    )
    assert here.kind is VerdictKind.FAIL
    assert apart == here
    assert "G3: lifting the lowered source again" in said


def test_a_cancel_ends_it_with_its_compilers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A compiler that never ends, before the real one."""
    try:
        real = find_toolchain().nvcc.path
    except MissingTool:
        pytest.skip("no nvcc here")
    slow = tmp_path / "bin" / "nvcc"
    slow.parent.mkdir()
    slow.write_text(f'#!/bin/sh\ncase "$*" in *.cu*) sleep 60;; *) exec {real} "$@";; esac\n')
    slow.chmod(0o755)
    mark = f"APART_MARK={tmp_path}"
    monkeypatch.setenv("APART_MARK", str(tmp_path))
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    package = find_kernel("flash_fwd_sm80")
    options = choose_options(package)
    lifted = lift(package, options.specialisation, options.arch)
    cancel = threading.Event()
    times: list[float] = []

    def progress(text: str) -> None:
        if "compiling" in text and not times:
            times.append(0.0)
            threading.Timer(1.0, cancel.set).start()

    begin = time.monotonic()
    with pytest.raises(Interrupted):
        judge_apart(
            package, lifted, lifted.module, package.source, options.arch, None, None,
            cancel=cancel, progress=progress,
        )  # fmt: skip
    assert times and time.monotonic() - begin < 15
    deadline = time.monotonic() + 2
    while processes_of(mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes_of(mark) == []


def test_a_killed_compiler_is_no_verdict(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    try:
        real = find_toolchain().nvcc.path
    except MissingTool:
        pytest.skip("no nvcc here")
    shot = tmp_path / "bin" / "nvcc"
    shot.parent.mkdir()
    shot.write_text(f'#!/bin/sh\ncase "$*" in *.cu*) kill -9 $$;; *) exec {real} "$@";; esac\n')
    shot.chmod(0o755)
    monkeypatch.setenv("PATH", f"{shot.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    package = find_kernel("flash_fwd_sm80")
    options = choose_options(package)
    lifted = lift(package, options.specialisation, options.arch)
    found = judge_apart(package, lifted, lifted.module, package.source, options.arch, None, None)
    assert found.kind is VerdictKind.NOT_RUN and found.details[UNFINISHED]
    assert "nvcc" in found.reason and "signal 9" in found.reason


def test_a_killed_process_says_which_signal() -> None:
    package = find_kernel("flash_fwd_sm80")
    options = choose_options(package)
    lifted = lift(package, options.specialisation, options.arch)

    def shoot(_: str) -> None:
        children = Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text()
        for pid in children.split():
            if b"engine.gates.g3_source.g3_process" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(int(pid), signal.SIGKILL)

    with pytest.raises(ChildEnded, match="was ended by signal 9"):
        judge_apart(
            package, lifted, lifted.module, package.source, options.arch, None, None, progress=shoot
        )  # fmt: skip


def test_a_cancel_while_it_lifts_ends_it_at_once() -> None:
    package = find_kernel("flash_fwd_sm80")
    options = choose_options(package)
    lifted = lift(package, options.specialisation, options.arch)
    cancel = threading.Event()
    cancelled: list[float] = []

    def progress(text: str) -> None:
        if "lifting" in text and not cancelled:
            cancelled.append(time.monotonic())
            cancel.set()

    with pytest.raises(Interrupted):
        judge_apart(
            package, lifted, lifted.module, package.source, options.arch, None, None,
            cancel=cancel, progress=progress,
        )  # fmt: skip
    assert time.monotonic() - cancelled[0] < 2
