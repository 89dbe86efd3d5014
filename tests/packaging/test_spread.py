"""How the whole suite is spread over workers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FILE = """
from pathlib import Path
import pytest

@pytest.fixture({scope})
def made():
    with Path({log!r}).open("a") as log:
        log.write("made\\n")

@pytest.mark.parametrize("number", range(8))
def test_uses_it(made, number):
    pass
"""


@pytest.mark.parametrize(("scope", "times"), [('scope="module"', 1), ("", 8)])
def test_what_a_file_makes_once_is_made_once_on_two_workers(
    tmp_path: Path, root: Path, scope: str, times: int
) -> None:
    log = tmp_path / "log"
    (tmp_path / "test_it.py").write_text(FILE.format(scope=scope, log=str(log)))
    (tmp_path / "conftest.py").write_text(
        "from tests.conftest import pytest_collection_modifyitems  # noqa: F401\n"
    )
    command = [sys.executable, "-P", "-m", "pytest", "-v"]
    result = subprocess.run(
        [*command, "-p", "no:cacheprovider", "-n", "2", "--dist", "loadgroup", str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "8 passed" in result.stdout, result.stdout + result.stderr
    assert log.read_text().splitlines() == ["made"] * times
