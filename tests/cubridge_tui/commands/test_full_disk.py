"""A store without room: the command says what to type once there is some, and that works."""

from __future__ import annotations

import os
import resource
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

LEAST = 4096 + 1  # the block that is tried first may be written, a kernel's text may not


def limited(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@pytest.mark.parametrize("room", [0, LEAST])
def test_the_command_that_a_full_disk_names_works(tmp_path: Path, root: Path, room: int) -> None:
    store = tmp_path / "my store.git"  # a name that a shell splits
    words = ["adapt", "--kernel", "flash_fwd_sm80", "--spec", "causal", "--store", str(store)]
    environ = {**os.environ, "PYTHONPATH": str(root), "PATH": f"{tmp_path}:/usr/bin:/bin"}
    ours = tmp_path / "cubridge"
    ours.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m cubridge_tui "$@"\n')
    ours.chmod(0o755)
    failed = subprocess.run(
        [ours, *words], env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=120,
        preexec_fn=lambda: limited(room), check=False,
    )  # fmt: skip
    assert failed.returncode == 2 and failed.stdout == "", failed.stderr
    assert "disk is full" in failed.stderr and "Traceback" not in failed.stderr
    command = failed.stderr.partition("then type: ")[2].strip()
    assert shlex.split(command) == ["cubridge", *words]
    again = subprocess.Popen(
        command, shell=True, env=environ, cwd=tmp_path, stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        assert again.stderr is not None
        told = ""
        for line in again.stderr:  # it goes past what had failed: the session is in the store
            told += line
            if line.startswith("session "):
                break
        assert "session " in told, told
    finally:
        os.killpg(again.pid, signal.SIGINT)
        again.communicate(timeout=60)
