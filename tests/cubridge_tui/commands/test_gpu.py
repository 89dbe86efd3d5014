"""What is said of a packed job can be typed where it was carried to."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

import pytest

from cubridge_tui.headless import how_to_run

RUN = "import sys; open(sys.argv[sys.argv.index('--out') + 1], 'w').write('ran')"


@pytest.mark.parametrize("name", ["job", "my job.v2", "job.tar", "it's a job.tar"])
def test_what_is_said_of_a_packed_job_runs_it(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name.removesuffix(".tar")
    folder.mkdir()
    (folder / "run.py").write_text(RUN)
    if name.endswith(".tar"):
        with tarfile.open(tmp_path / name, "w") as tar:
            tar.add(folder, folder.name)
        (folder / "run.py").unlink()
        folder.rmdir()
    command = how_to_run(Path("elsewhere") / name)
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    assert (tmp_path / "result.json").read_text() == "ran"
