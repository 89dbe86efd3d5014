"""Temporary folders: one's own, and those that killed processes leave."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from engine.build.folder.scratch import scratch

HELD = """
import time
from engine.build.folder.scratch import scratch
with scratch() as folder:
    (folder / "file").write_text("")
    print(folder, flush=True)
    time.sleep(60)
"""


def test_what_a_killed_process_leaves_is_removed_and_what_is_held_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    other = tmp_path / "cubridge-run-link"
    other.symlink_to(tmp_path, target_is_directory=True)
    process = subprocess.Popen([sys.executable, "-c", HELD], stdout=subprocess.PIPE, text=True,
                               env={"TMPDIR": str(tmp_path)})  # fmt: skip
    assert process.stdout is not None
    held = Path(process.stdout.readline().strip())
    with process, scratch() as mine:
        assert held.parent == mine.parent == tmp_path
        with scratch() as second:
            assert second != mine and mine.is_dir() and (held / "file").is_file()
        assert not second.exists()
        process.kill()
        process.wait()
        assert held.is_dir()
        with scratch():
            assert not held.exists() and mine.is_dir()
    assert not mine.exists() and other.is_symlink()
