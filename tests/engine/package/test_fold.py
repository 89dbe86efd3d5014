"""One file of a kernel and its headers: nothing of them is lost, and a compiler sees the same."""

from __future__ import annotations

import posixpath
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.build.folder.units import unit_text
from engine.build.tools.toolchain import Toolchain
from engine.errors import InputError
from engine.lift.files.kernel_package import load_package
from engine.package.export import package_files
from engine.package.fold import fold, unfold
from tests.engine.package.conftest import FIELDS, content

NAMES = ("a.cuh", "b.cuh", "sub/c.cuh")
LINES = st.one_of(
    st.sampled_from(
        ["#pragma once", "int x;", "", "#include <cmath>", "// a comment", "#if 1", "#endif", "\r"]
    ),
    st.builds('#include "{}"'.format, st.sampled_from([*NAMES, "../a.cuh", "c.cuh", "none.h"])),
)


def text(lines: list[str]) -> bytes:
    return "\n".join(lines).encode()


@settings(deadline=None)
@given(st.lists(LINES), st.lists(st.lists(LINES), min_size=3, max_size=3))
def test_what_was_folded_comes_back(source: list[str], bodies: list[list[str]]) -> None:
    """Headers include only those after them, as headers without a cycle do."""
    headers = {}
    for n, (name, body) in enumerate(zip(NAMES, bodies, strict=True)):
        later = NAMES[n + 1 :]
        kept = [
            line for line in body
            if '"' not in line or _named(line, name) in later or "none" in line
        ]  # fmt: skip
        headers[name] = text(kept)
    files = unfold(fold(text(source), headers))
    assert files.pop("") == text(source)
    assert all(headers[name] == data for name, data in files.items())


def _named(line: str, includer: str) -> str:
    included = line.split('"')[1]
    beside = posixpath.normpath(posixpath.join(posixpath.dirname(includer), included))
    return beside if beside in NAMES else included


def test_a_source_with_lines_like_the_markers_is_refused() -> None:
    with pytest.raises(InputError, match="cannot be folded"):
        fold(b"//== int x;\n", {})


def test_a_header_is_there_once_and_again_where_a_condition_may_skip_it() -> None:
    headers = {"a.cuh": b"#pragma once\nint a;\n", "g.h": b"#ifndef G\n#define G\nint g;\n#endif\n"}
    plain = fold(b'#include "a.cuh"\n#include "a.cuh"\n#include "g.h"\n#include "g.h"\n', headers)
    assert plain.count(b"int a;") == plain.count(b"int g;") == 1
    under = fold(b'#if X\n#include "a.cuh"\n#else\n#include "a.cuh"\n#endif\n', headers)
    assert under.count(b"int a;") == 2


ONCE, GUARD = b"#pragma once\nint a;\n", b"#ifndef G\n#define G\nint a;\n#endif\n"
AFTER = b'#ifndef O\n#define O\n#endif\n#ifdef X\n#include "a.cuh"\n#endif\n'


@pytest.mark.parametrize("defined", [(), ("-DX",)])
@pytest.mark.parametrize("inner", [ONCE, GUARD])
@pytest.mark.parametrize(
    ("source", "outer"),
    [
        (b'#ifdef X\n#include "o.cuh"\n#endif\n#include "a.cuh"\n', b'#include "a.cuh"\n'),
        (b'#ifdef X\n#include "a.cuh"\n#endif\n#include "a.cuh"\n#include "a.cuh"\n', b""),
        (b'#include "o.cuh"\n#include "a.cuh"\n', AFTER),
        (b'/*\n#include "a.cuh"\n*/\n#include "a.cuh"\n', b""),
        (
            b'#include "o.cuh"\n#include "o.cuh"\n',
            b"// no #pragma once\n/*\n#pragma once\n*/\nf;\n",
        ),
    ],
)
def test_what_a_condition_skips_is_read_as_often_as_before(
    defined: tuple[str, ...], inner: bytes, source: bytes, outer: bytes, tmp_path: Path
) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    headers = {"a.cuh": inner, "o.cuh": outer}
    made = fold(source, headers)
    assert unfold(made)[""] == source

    def preprocessed(folder: Path, files: dict[str, bytes]) -> list[str]:
        folder.mkdir()
        for name, data in files.items():
            (folder / name).write_bytes(data)
        command = [compiler, *defined, "-E", "-P", "source.c"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
        return done.stdout.split()

    apart = preprocessed(tmp_path / "apart", {"source.c": source, **headers})
    assert preprocessed(tmp_path / "one", {"source.c": made}) == apart


@pytest.mark.parametrize(("kernel", "arch"), [("flash_fwd_sm80", "80"), ("flash_fwd_sm90", "90a")])
def test_a_compiler_sees_what_the_gates_compiled(
    kernel: str, arch: str, root: Path, tmp_path: Path, toolchain: Toolchain
) -> None:
    """Preprocessed, a unit of the one file and the unit of the gates are the same text, so they
    are the same machine code."""
    package = load_package(root / "kernels" / kernel)
    (tmp_path / "kernel.cu").write_bytes(package.source)
    for name, data in package.headers:
        path = tmp_path / "include" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    made = content(
        root, source=package.source, headers=package.headers, entry=package.entry,
        specialisations=package.specialisations,
    )  # fmt: skip
    keys = ["_".join(s.values()) for s in package.specialisations]
    key = keys[-1]
    (tmp_path / "unit.cu").write_text(unit_text(key, package.entry, FIELDS))
    (tmp_path / "one.cu").write_bytes(package_files(made, "mine")["kernel.cu"])

    def preprocessed(*arguments: str) -> str:
        flags = ["-std=c++17", f"-arch=sm_{arch}", f"-DCUBRIDGE_ARCH={arch[:2]}0", "-E"]
        done = subprocess.run(
            [str(toolchain.nvcc.path), *flags, *arguments],
            cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120,
        )  # fmt: skip
        lines = (line for line in done.stdout.splitlines() if line.strip() and line[0] != "#")
        return "\n".join(re.sub(r"\s+", " ", line).strip() for line in lines)

    unit = preprocessed("-Iinclude", "unit.cu")
    one = preprocessed(f"-DCUBRIDGE_UNIT={keys.index(key)}", "one.cu")
    assert unit == one and f"cubridge_launch_{key}" in one
