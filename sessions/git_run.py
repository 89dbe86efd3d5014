"""The one module that touches GitPython: one git command, run to its end.

`Git.execute` (what `Repo.git` is) without a `Repo`: no child and no descriptor outlives a call.
Inherited variables that point git elsewhere are dropped, since the app may have been started inside
a hook. GitPython takes 0.1 to 0.2 s to import, so that happens on the first command.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import MissingTool, StoreError

if TYPE_CHECKING:
    from subprocess import Popen

    from git import Git

OLDEST_GIT = (2, 36)  # core.fsync came with 2.36

_TICK = 0.05  # seconds between looks at whether git ended whose pipes something holds open
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
    """Run git in `folder` with `environment` on top of ours, and wait for it, not for what a hook
    of it left running.

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
            env=dict(environment),
            # A Ctrl-C is for us, not for git in the middle of a save; and without a terminal
            # nothing can prompt on it.
            start_new_session=True,
        )
        child = process.proc  # the wrapper's `wait` raises where git refuses
        assert child is not None
        out, err = _talk(child, stdin)
    except (OSError, _git_not_found()) as error:
        raise GitKilled(f"git could not be started: {error}", fix="cubridge doctor") from None
    return Done(child.wait(), out, err.decode("utf-8", "replace"))


def _talk(process: Popen[bytes], stdin: bytes) -> tuple[bytes, bytes]:
    """Give git its input and take all that it writes until it ends. What it started may hold its
    pipes open for longer: these are then read as far as they are filled, and closed."""
    import selectors

    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    said = {process.stdout: bytearray(), process.stderr: bytearray()}
    rest = memoryview(stdin)
    os.set_blocking(process.stdin.fileno(), False)
    with process.stdin, process.stdout, process.stderr, selectors.DefaultSelector() as ready:
        ready.register(process.stdin, selectors.EVENT_WRITE)
        for stream in said:
            ready.register(stream, selectors.EVENT_READ)
        while ready.get_map():
            ended = process.poll() is not None
            events = ready.select(0 if ended else _TICK)
            if ended and not any(key.fileobj in said for key, _ in events):
                break
            for key, _ in events:
                if key.fileobj is process.stdin:
                    with contextlib.suppress(BrokenPipeError):
                        rest = rest[os.write(key.fd, rest) :] if rest else rest
                        if rest:
                            continue
                    ready.unregister(process.stdin)
                    process.stdin.close()
                elif chunk := os.read(key.fd, 1 << 16):
                    said[key.fileobj] += chunk  # type: ignore[index]
                else:
                    ready.unregister(key.fileobj)
    return bytes(said[process.stdout]), bytes(said[process.stderr])


@cache
def _git_class() -> type[Git]:
    """GitPython's `Git`; the package looks for git while it is imported."""
    no_git = MissingTool(
        "the store needs git, and no git was found on PATH",
        fix="install git 2.36 or newer, for example: apt-get install git",
    )
    try:
        with _unconfigured():
            from git import Git

            version = tuple(Git().version_info[:2])
    except ModuleNotFoundError:
        raise MissingTool(
            "the store needs GitPython", fix="python3 -m pip install gitpython"
        ) from None
    except Exception as error:  # GitPython turns all that git says into an ImportError
        import shutil

        if shutil.which("git") is None or isinstance(error, _git_not_found()):
            raise no_git from None
        raise MissingTool(
            f"the git on PATH does not run: {said_by_git(str(error))}",
            fix="see what `git version` says",
        ) from None
    if version < OLDEST_GIT:
        found = ".".join(map(str, version))
        raise MissingTool(
            f"the store needs git 2.36 or newer, which syncs every write; this is {found}",
            fix="install a newer git",
        )
    return Git


@contextlib.contextmanager
def _unconfigured() -> Iterator[None]:
    """Our environment with git's configuration out of reach, for as long as GitPython asks git for
    its version: git reads its files even for that, and a broken one is no missing git."""
    ours = {name: text for name, text in os.environ.items() if name.startswith("GIT_CONFIG")}
    for name in ours:
        del os.environ[name]
    os.environ.update(GIT_CONFIG_GLOBAL=os.devnull, GIT_CONFIG_NOSYSTEM="1")
    try:
        yield
    finally:
        del os.environ["GIT_CONFIG_GLOBAL"], os.environ["GIT_CONFIG_NOSYSTEM"]
        os.environ.update(ours)


def said_by_git(text: str) -> str:
    """What git wrote, on one printable line: the cause often stands lines above the last one.

    Its hints are left out; of a long text (a hook's) the start, the end and all errors are kept.
    """
    lines = ["".join(c if c.isprintable() else "?" for c in x.strip()) for x in text.splitlines()]
    lines = [line for line in dict.fromkeys(lines) if line and not line.startswith("hint:")]
    kept = [
        line
        for at, line in enumerate(lines)
        if at < 3 or at >= len(lines) - 3 or line.startswith(("fatal:", "error:"))
    ]
    words = "; ".join(kept)
    return words if len(words) <= 600 else f"{words[:300]} ... {words[-300:]}"


def _git_not_found() -> type[Exception]:
    try:
        from git.exc import GitCommandNotFound
    except ImportError:  # the package did not load: then it is not that either
        return FileNotFoundError
    return GitCommandNotFound


def _clean_environment(environment: Mapping[str, str]) -> list[str]:
    """A prefix that drops inherited GIT_* variables; empty when there are none."""
    kept = {*_HARMLESS, *environment}
    names = [name for name in os.environ if name.startswith("GIT_") and name not in kept]
    return ["env", *(part for name in names for part in ("-u", name))] if names else []
