"""README.md quotes what its commands print now."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from cubridge_tui import console
from cubridge_tui.cli import main
from tests.engine.foreign.test_check import KERNEL, LAUNCH, replaced, write
from tests.engine.service.executed.plain import has_nvcc

pytestmark = [
    pytest.mark.skipif(not has_nvcc(), reason="nvcc compiles the kernels of these pages"),
    pytest.mark.xdist_group("executed"),
]


def quoted(page: str) -> Iterator[list[str]]:
    """The indented blocks of the part about kernels of others, each line without its indent."""
    part = page[page.index("## Anyone's kernel") : page.index("## What you get")]
    for block in re.findall(r"(?:^    .*\n)+", part, re.MULTILINE):
        yield [line[4:] for line in block.splitlines()]


def stable(line: str) -> str:
    """A line without what a compiler's version changes: small differences, counts of registers."""
    line = re.sub(r"\d+\.\d+(e-?\d+)?|\de-\d+", "#", line)
    return re.sub(r"\d+ registers|source: \d+\)", "# registers", line).rstrip()


def test_what_is_quoted_of_kernels_of_others_is_printed(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All commands in their order; each line that is quoted is printed by them, and in the order of
    the page. A patch is quoted whole."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUBRIDGE_STORE", str(tmp_path / "store.git"))
    monkeypatch.setattr(console, "own_command", lambda: "cubridge")
    shutil.copy(root / "tests/engine/foreign/bulk_store.cu", tmp_path)
    write(tmp_path, replaced(KERNEL, "j < N; j++) l +=", "j < N - 1; j++) l +=") + LAUNCH)
    plain = Path("tests/engine/graft/plain.cu")
    plain.parent.mkdir(parents=True)
    shutil.copy(root / plain, plain)
    printed: list[str] = []
    commands = 0
    for block in quoted((root / "README.md").read_text("utf-8")):
        if block[0].startswith("cubridge gpu"):
            continue
        if block[0].startswith("cubridge "):
            commands += len(block)
            for command in block:
                main(shlex.split(command)[1:])
            out = capsys.readouterr()
            printed = [stable(line) for line in (out.err + out.out).splitlines()]
        elif block[0].startswith("@@"):
            patch = Path("adapted/target.patch").read_text("utf-8").splitlines()
            assert block == [line.rstrip() for line in patch[2:]]
        else:
            for line in map(stable, block):
                assert line in printed, f"{line}\nis not among\n" + "\n".join(printed)
                del printed[: printed.index(line) + 1]
    assert commands == 4
