"""Runs `cubridge` commands in forks of one process that has imported what they use.

A test of a command pays for what the command does, not for a second of imports each time. The fork
has its own streams, folder and environment; nothing ran before it. A line of JSON on standard input
is an order, a line on standard output its process id and another its exit code. The same process
makes the ones that judge (see warm_children.py), for commands and for tests that call the engine.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import pkgutil
import select
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, NoReturn

from engine.child import client
from engine.gpu import job
from engine.package.vendor import vendored
from tests import judged_once, warm_children

SECONDS = 120
# What commands import when they are run.
USED = (
    "engine.service.executed.opened", "engine.service.models.llm", "engine.service.upkeep.recheck",
    "engine.service.upkeep.doctor", "engine.llm.client", "openai", "git",
)  # fmt: skip


class Forks:
    """The process that forks; started with the first command."""

    def __init__(self, root: Path, answers: Path) -> None:
        self.root = root
        self.answers = answers
        self.lock = threading.Lock()
        self.order = threading.Lock()  # one order at a time
        self.process: subprocess.Popen[bytes] | None = None
        self.warm: warm_children.Warm | None = None

    def started(self) -> subprocess.Popen[bytes]:
        if self.process is None:
            mine, theirs = warm_children.pair()
            self.warm = warm_children.Warm(mine)
            with theirs:
                self.process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "tests.forked_commands",
                     str(theirs.fileno()), str(self.answers)],
                    env={**os.environ, **warm_children.ALONE, "PYTHONPATH": str(self.root)},
                    # Nothing is read ahead: `select` tells of what has not been read.
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
                    pass_fds=(theirs.fileno(),),
                )  # fmt: skip
        return self.process

    def judging(self, log: IO[bytes], reason: int) -> subprocess.Popen[bytes]:
        """Stands in for `engine.child.client.start_server`."""
        with self.lock:
            self.started()
        assert self.warm is not None
        return self.warm.start(log, reason)

    def run(
        self, arguments: Sequence[str], cwd: Path | None, environ: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """The command's exit code and all that it wrote. Raises `subprocess.TimeoutExpired`."""
        with self.lock:
            process = self.started()
        assert process.stdin is not None and process.stdout is not None
        with self.order, tempfile.TemporaryDirectory(prefix="cubridge-test-") as name:
            out, err = Path(name) / "out", Path(name) / "err"
            order = [list(arguments), str(cwd or Path.cwd()), dict(environ), str(out), str(err)]
            process.stdin.write(json.dumps(order).encode() + b"\n")
            pid = int(process.stdout.readline())
            if not select.select([process.stdout], [], [], SECONDS)[0]:
                os.kill(pid, 9)
                process.stdout.readline()
                raise subprocess.TimeoutExpired(list(arguments), SECONDS)
            code = int(process.stdout.readline())
            texts = (path.read_text(encoding="utf-8") for path in (out, err))
            return subprocess.CompletedProcess(list(arguments), code, *texts)

    def close(self) -> None:
        if self.process is not None and self.warm is not None:
            self.warm.orders.close()
            self.process.communicate(timeout=SECONDS)


def _end(code: int) -> NoReturn:
    """End as Python does, but for taking down, module by module, what the fork has from before."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def serve() -> int:
    """Fork for each order, until there are no more."""
    import cubridge_tui.commands
    from cubridge_tui.cli import main

    for found in pkgutil.iter_modules(cubridge_tui.commands.__path__):
        importlib.import_module(f"cubridge_tui.commands.{found.name}")
    for name in USED:
        importlib.import_module(name)
    job.worker_files()
    vendored()
    warm_children.load()
    warm_children.apart(int(sys.argv[1]))
    judged_once.remember_in(Path(sys.argv[2]))
    answers = os.fdopen(os.dup(1), "w")
    while line := sys.stdin.readline():
        arguments, cwd, environ, out, err = json.loads(line)
        pid = os.fork()
        if pid == 0:
            answers.close()
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            for stream, path in enumerate((os.devnull, out, err)):
                opened = os.open(path, flags if stream else os.O_RDONLY, 0o600)
                os.dup2(opened, stream)
                os.close(opened)
            os.chdir(cwd)
            os.environ.clear()
            os.environ.update(environ)
            sys.argv = ["cubridge", *arguments]
            client.start_server = warm_children.beneath().start
            _end(main())
        print(pid, file=answers, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(serve())
