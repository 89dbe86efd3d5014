"""Whether compiling a patched kernel reads the author's originals of what was patched."""

from __future__ import annotations

from pathlib import Path

from engine.build.tools.process import run
from engine.build.tools.toolchain import Toolchain, compiler_environ
from engine.errors import InputError
from engine.foreign.check import Asked
from engine.graft.edits import Files


def originals_read(asked: Asked, changed: Files, tools: Toolchain, folder: Path) -> list[Path]:
    """The originals of changed files that compiling the overlay would still read.

    Raises:
        InputError: nvcc cannot say what it reads.
    """
    command = [str(tools.nvcc.path), "-M", f"-I{asked.source.parent}", *asked.flags.words(),
               str(asked.source)]  # fmt: skip
    done = run(command, cwd=folder, environ=compiler_environ(), limit=600.0)
    if not done.ok:
        raise InputError(f"nvcc -M ended with {done.returncode}: {done.output.strip()[:200]}")
    read = {Path(word).resolve() for word in done.output.replace("\\\n", " ").split()}
    return sorted(file for file in changed if file in read)
