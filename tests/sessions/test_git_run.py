"""Git as it is found: a configuration that it cannot read, and what it says when it fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sessions.git_run import said_by_git

ROOT = Path(__file__).resolve().parents[2]
BROKEN = {
    "a section": "[core\nthis is broken",
    "a boolean": "[core]\nbare = maybe\n",
    "what it includes": "[include]\npath = other\n",
    "a folder": None,
}
CAUSE = {
    "a section": "bad config line 1 in file",
    "a boolean": "bad boolean config value 'maybe' for 'core.bare'",
    "what it includes": "other",
    "a folder": "Is a directory",
}


@pytest.mark.parametrize("what", sorted(BROKEN))
def test_a_configuration_that_git_cannot_read_is_no_missing_git(tmp_path: Path, what: str) -> None:
    """In a process of its own: GitPython asks for git's version while it is imported."""
    text = BROKEN[what]
    if text is None:
        (tmp_path / ".gitconfig").mkdir()
    else:
        (tmp_path / ".gitconfig").write_text(text)
    (tmp_path / "other").write_text("[x")
    script = (
        "import sys\nfrom pathlib import Path\nfrom sessions.store import Store\n"
        "from sessions.user_repository import plan_commit\nfrom engine.errors import InputError\n"
        "from tests.sessions.conftest import created\n"
        "print(Store.open(sys.argv[1]).create(created(), actor='a'))\n"
        "try:\n    plan_commit({Path('k.cu').absolute(): b'x'}, title='t', session='s', level=None, sha256='h')\n"
        "except InputError as error:\n    print(error)"
    )
    subprocess.run(["git", "init", "-q", str(tmp_path / "mine")], check=True)
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "s")], cwd=tmp_path / "mine",
        env={**os.environ, "HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "GIT_CONFIG_COUNT": "x"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "no git" not in done.stdout and "not run" not in done.stdout
    assert CAUSE[what] in done.stdout, "the commit into the person's repository says why"


def test_the_line_with_the_cause_is_kept() -> None:
    text = "warning: unable to access '/x'\n" * 2 + "fatal: unknown error\nhint: a\nhint: b\n"
    assert said_by_git(text) == "warning: unable to access '/x'; fatal: unknown error"
    hook = "\n".join(["black failed", *map(str, range(50)), "error: a.py", *map(str, range(50, 99))])
    assert said_by_git(hook) == "black failed; 0; 1; error: a.py; 96; 97; 98"
    assert said_by_git("error: \x1b[31mno\x1b[0m\n\n") == "error: ?[31mno?[0m"
    assert len(said_by_git("x" * 9999)) < 700
