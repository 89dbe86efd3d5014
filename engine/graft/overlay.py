"""A foreign kernel with changed files: its folders copied whole, so that every include finds the
changed file and none the original."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from engine.build.process import run
from engine.build.toolchain import Toolchain, compiler_environ
from engine.errors import InputError
from engine.foreign.check import Asked
from engine.graft.edits import Files


def overlaid(asked: Asked, changed: Files, folder: Path) -> Asked:
    """The kernel with `changed` in the place of its files, below `folder`.

    The source's folder is copied, and each include folder that a changed file is in.
    """
    source = asked.source.resolve()
    copied = {source.parent: folder / "source"}
    for number, include in enumerate(asked.flags.includes):
        root = Path(include).resolve()
        if any(f.is_relative_to(root) for f in changed):
            copied[root] = folder / f"include{number}"
    for root, target in copied.items():
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(root, target, ignore=shutil.ignore_patterns(".git", "*.o", "*.so"))
        for file, data in changed.items():
            if file.is_relative_to(root):
                (target / file.relative_to(root)).write_bytes(data)
    includes = tuple(
        str(copied.get(Path(i).resolve(), Path(i).resolve())) for i in asked.flags.includes
    )
    return replace(
        asked, source=copied[source.parent] / source.name,
        flags=replace(asked.flags, includes=includes),
    )  # fmt: skip


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
