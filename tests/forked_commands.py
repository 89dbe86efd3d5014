"""Runs `cubridge` commands in forks of one process that has imported what they use.

A test of a command pays for what the command does, not for a second of imports each time. The fork
has its own streams, folder and environment; nothing ran before it. A line of JSON on standard input
is an order, a line on standard output its process id and another its exit code.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import select
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

SECONDS = 120
# What commands import when they are run.
USED = (
    "engine.service.executed.opened", "engine.service.models.llm", "engine.service.upkeep.recheck",
    "engine.service.upkeep.doctor", "engine.llm.client", "openai", "git",
)  # fmt: skip


class Forks:
    """The process that forks; started with the first command."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.process: subprocess.Popen[str] | None = None

    def run(
        self, arguments: Sequence[str], cwd: Path | None, environ: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """The command's exit code and all that it wrote. Raises `subprocess.TimeoutExpired`."""
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "tests.forked_commands"],
                env={**os.environ, "PYTHONPATH": str(self.root)},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
        process = self.process
        assert process.stdin is not None and process.stdout is not None
        with tempfile.TemporaryDirectory(prefix="cubridge-test-") as name:
            out, err = Path(name) / "out", Path(name) / "err"
            order = [list(arguments), str(cwd or Path.cwd()), dict(environ), str(out), str(err)]
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.flush()
            pid = int(process.stdout.readline())
            if not select.select([process.stdout], [], [], SECONDS)[0]:
                os.kill(pid, 9)
                process.stdout.readline()
                raise subprocess.TimeoutExpired(list(arguments), SECONDS)
            code = int(process.stdout.readline())
            texts = (path.read_text(encoding="utf-8") for path in (out, err))
            return subprocess.CompletedProcess(list(arguments), code, *texts)

    def close(self) -> None:
        if self.process is not None:
            self.process.communicate(timeout=SECONDS)


def serve() -> int:
    """Fork for each order; in a fork, the command's exit code."""
    import cubridge_tui.commands
    from cubridge_tui.cli import main

    for found in pkgutil.iter_modules(cubridge_tui.commands.__path__):
        importlib.import_module(f"cubridge_tui.commands.{found.name}")
    for name in USED:
        importlib.import_module(name)
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
            return main()
        print(pid, file=answers, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(serve())
