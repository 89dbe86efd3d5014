"""The one module that touches GitPython: one git command, run to its end.

`Git.execute` (what `Repo.git` is) without a `Repo`: no child and no descriptor outlives a call.
Inherited variables that point git elsewhere are dropped, since the app may have been started inside
a hook. GitPython takes 0.1 to 0.2 s to import, so that happens on the first command.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import MissingTool, StoreError

if TYPE_CHECKING:
    from git import Git

OLDEST_GIT = (2, 36)  # core.fsync came with 2.36

_PIPE = -1  # subprocess.PIPE, without importing subprocess before git does
# A person's own settings that say where git is or who they are, and point it nowhere.
_HARMLESS = (
    "GIT_EXEC_PATH",
    "GIT_PYTHON_GIT_EXECUTABLE",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_SYSTEM",
    "GIT_CONFIG_NOSYSTEM",
    "GIT_AUTHOR_NAME",
    "GIT_AUTHOR_EMAIL",
    "GIT_COMMITTER_NAME",
    "GIT_COMMITTER_EMAIL",
)


class GitKilled(StoreError):
    """Git did not run to its end, so nothing is known about what it was asked for."""


@dataclass(frozen=True, slots=True)
class Done:
    """How a git command ended: its exit status (negative: the signal), and what it wrote."""

    code: int
    out: bytes
    err: str


def run_git(
    folder: Path, arguments: Sequence[str], stdin: bytes, environment: Mapping[str, str]
) -> Done:
    """Run git in `folder` with `environment` on top of ours, and wait for it.

    Raises:
        GitKilled: git could not be started.
        MissingTool: there is no git, or it is too old.
    """
    git = _git_class()(str(folder))
    command = [*_clean_environment(environment), git.GIT_PYTHON_GIT_EXECUTABLE or "git", *arguments]
    try:
        process = git.execute(
            command,
            istream=_PIPE,
            as_process=True,
            env={"GIT_TERMINAL_PROMPT": "0", **environment},
            # A Ctrl-C is for us, not for git in the middle of a save.
            start_new_session=True,
        )
        out, err = process.communicate(stdin)
    except (OSError, _git_not_found()) as error:
        raise GitKilled(f"git could not be started: {error}", fix="cubridge doctor") from None
    return Done(process.returncode, bytes(out), err.decode("utf-8", "replace"))


@cache
def _git_class() -> type[Git]:
    """GitPython's `Git`; the package looks for git while it is imported."""
    no_git = MissingTool(
        "the store needs git, and no git was found on PATH",
        fix="install git 2.36 or newer, for example: apt-get install git",
    )
    try:
        from git import Git
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "git":
            raise MissingTool(
                "the store needs GitPython", fix="python3 -m pip install gitpython"
            ) from None
        raise no_git from None
    try:
        version = tuple(Git().version_info[:2])
    except _git_not_found():
        raise no_git from None
    if version < OLDEST_GIT:
        found = ".".join(map(str, version))
        raise MissingTool(
            f"the store needs git 2.36 or newer, which syncs every write; this is {found}",
            fix="install a newer git",
        )
    return Git


def _git_not_found() -> type[Exception]:
    from git.exc import GitCommandNotFound

    return GitCommandNotFound


def _clean_environment(environment: Mapping[str, str]) -> list[str]:
    """A prefix that drops inherited GIT_* variables; empty when there are none."""
    kept = {*_HARMLESS, *environment}
    names = [name for name in os.environ if name.startswith("GIT_") and name not in kept]
    return ["env", *(part for name in names for part in ("-u", name))] if names else []
