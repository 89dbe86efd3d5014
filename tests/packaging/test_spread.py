"""How the whole suite is spread over workers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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


def test_what_a_file_makes_once_is_made_once_on_two_workers(tmp_path: Path, root: Path) -> None:
    for name, scope in (("once", 'scope="module"'), ("each", "")):
        text = FILE.format(scope=scope, log=str(tmp_path / name))
        (tmp_path / f"test_{name}.py").write_text(text)
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
    assert "16 passed" in result.stdout, result.stdout + result.stderr
    made = {name: (tmp_path / name).read_text().splitlines() for name in ("once", "each")}
    assert made == {"once": ["made"], "each": ["made"] * 8}
