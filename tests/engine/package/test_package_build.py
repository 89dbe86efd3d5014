"""Exported packages build by themselves, in a process that has never heard of CuBridge."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from engine.build.tools.toolchain import Toolchain
from engine.package.export import export
from tests.engine.package.conftest import content

# A plain process: the package's folder and torch, and a hostile engine/ in the current folder.
PLAIN = """
import sys
sys.path.insert(0, sys.argv[1])
import ctypes, torch
import one_kernel
from one_kernel import _runtime
ours = one_kernel._OPERATOR
library = _runtime.load(sys.argv[2], ours.filler.struct)
empty = torch.empty(1, 1, 0, 64, dtype=torch.float16)
key = torch.empty(1, 1, 3, 64, dtype=torch.float16)
values = {"q": empty, "k": key, "v": key, "O": empty, "LSE": torch.empty(1, 1, 0)}
sizes, specialisation = ours.checks.check(values)
args = ours.filler.fill(values, sizes)
_runtime.launch(library, args, specialisation, 0)  # no rows: nothing is launched
# The whole way of a call, with the parts that need a GPU taken out.
from contextlib import nullcontext
plain = _runtime.library
_runtime.library = lambda device, struct: library
torch.cuda.device = lambda device: nullcontext()
torch.cuda.current_stream = lambda: type("Stream", (), {"cuda_stream": 0})
out, lse = ours.forward(empty, key, key)
assert (out.shape, lse.shape, lse.dtype) == (empty.shape, (1, 1, 0), torch.float32)
for wrong, key in ((args, "f16_65"), (ctypes.c_int(0), specialisation)):
    try:
        _runtime.launch(library, wrong, key, 0)
    except RuntimeError as error:
        print(error)
print(sorted(m for m in sys.modules if m.split(".")[0] in ("engine", "sessions", "cubridge_tui")))
"""


@pytest.fixture(scope="module")
def folder(root: Path, tmp_path_factory: pytest.TempPathFactory, toolchain: Toolchain) -> Path:
    made = content(root)
    only = tuple(s for s in made.specialisations if set(s.values()) == {"f16", "64"})
    return export(replace(made, specialisations=only), tmp_path_factory.mktemp("x") / "one_kernel")


@pytest.fixture(scope="module")
def library(folder: Path) -> Path:
    done = build(folder, "--arch", "sm_80")
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def build(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", str(folder / "build.py"), *arguments],
        cwd="/", capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def run(code: str, place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python code in a process of its own, where a hostile `engine` lies in the current folder."""
    hostile = place / "engine"
    hostile.mkdir(exist_ok=True)
    (hostile / "__init__.py").write_text("raise SystemExit('hostile')")
    return subprocess.run(
        [sys.executable, "-I", "-c", code, *arguments],
        cwd=place, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def test_a_build_is_used_again_and_nothing_else_is_left(folder: Path, library: Path) -> None:
    assert re.fullmatch(r"libone_kernel-sm_80-[0-9a-f]{16}\.so", library.name)
    before = library.stat().st_mtime_ns
    assert build(folder, "--arch", "sm_80").returncode == 0
    assert library.stat().st_mtime_ns == before
    left = {path.name for path in (folder / "build").iterdir()}
    assert left == {library.name, ".gitignore", ".lock"}


def test_a_plain_process_calls_it(folder: Path, library: Path, tmp_path: Path) -> None:
    done = run(PLAIN, tmp_path, str(folder.parent), str(library))
    assert done.returncode == 0, done.stderr
    unknown, wrong_size, modules = done.stdout.splitlines()
    assert "no such specialisation" in unknown and "(status -1)" in unknown
    assert "another size" in wrong_size
    assert modules == "[]"


def test_one_command_builds_it_too(folder: Path, tmp_path: Path, toolchain: Toolchain) -> None:
    """As its own comment says: nvcc on kernel.cu, without build.py."""
    info = json.loads((folder / "verdicts.json").read_text())["build"]
    flags = [*info["archs"]["sm_80"], *info["compile"], *info["link"], *toolchain.link_flags]
    made = tmp_path / "made.so"
    command = [str(toolchain.nvcc.path), *flags, "-o", str(made), str(folder / "kernel.cu")]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    done = run(PLAIN, tmp_path, str(folder.parent), str(made))
    assert done.returncode == 0, done.stderr


def test_a_library_of_another_struct_is_refused(
    folder: Path, library: Path, tmp_path: Path
) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from one_kernel import _runtime\n"
        "_runtime.load(sys.argv[2], _runtime.args_type([['q', 'tensor']]))\n"
    )
    assert "takes a struct of" in run(code, tmp_path, str(folder.parent), str(library)).stderr


def test_what_cannot_be_built_is_said(folder: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(folder, broken, ignore=shutil.ignore_patterns("build"))
    source = broken / "kernel.cu"
    source.write_text(source.read_text().replace("copy_async(sQ", "copy_nonsense(sQ"))
    done = build(broken)
    assert done.returncode == 1
    assert "copy_nonsense" in done.stderr and "Traceback" not in done.stderr
    done = build(broken, "--arch", "sm_75")
    assert done.returncode == 2 and "sm_80" in done.stderr


# With neither nvcc nor leave to write, as on a machine that only runs it.
LOADED = """
import os, sys, pathlib
sys.path.insert(0, sys.argv[1])
import torch
import one_kernel
from one_kernel import _runtime, build

def refused(*given, **named):
    raise PermissionError("read-only")

def no_compiler():
    raise build.BuildError("there is no nvcc")

build.find_nvcc = no_compiler
build.fcntl.flock = pathlib.Path.mkdir = pathlib.Path.write_text = refused
torch.cuda.get_device_capability = lambda device: (8, 0)
try:
    loaded = _runtime.library(torch.device("cuda", 0), one_kernel._OPERATOR.filler.struct)
    print(loaded.cubridge_args_size())
except build.BuildError as error:
    print(error)
"""


@pytest.mark.parametrize("change", ["times", "source", "flags"])
def test_a_library_is_the_source_s_and_the_flags_own(
    folder: Path, library: Path, tmp_path: Path, change: str
) -> None:
    there = tmp_path / "one_kernel"
    shutil.copytree(folder, there)
    source = there / "kernel.cu"
    if change == "times":
        os.utime(source, (library.stat().st_mtime + 1000,) * 2)
    if change == "source":
        source.write_text(source.read_text() + "\n// edited\n")
    if change == "flags":
        verdicts = there / "verdicts.json"
        verdicts.write_text(verdicts.read_text().replace("-O3", "-O2"))
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import build\n"
        "def none():\n    raise build.BuildError('there is no nvcc')\n"
        "build.find_nvcc = none\n"
        "try:\n    print(build.build('sm_80'))\nexcept build.BuildError as error:\n    print(error)"
    )
    done = run(code, tmp_path, str(there))
    if change == "times":
        assert done.stdout.strip() == str(there / "build" / library.name), done.stderr
    else:
        assert done.stdout.startswith("no library for sm_80 is built (the one that is there was")


def test_a_wheel_holds_the_library_and_runs_from_a_read_only_place_in_many_processes(
    folder: Path, library: Path, tmp_path: Path
) -> None:
    """pip makes it of the folder (the library is there already), and installs it elsewhere."""
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    make = [*pip, "wheel", "--no-deps", "--no-index", "-w", str(tmp_path), str(folder)]
    subprocess.run(make, check=True, capture_output=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    held = zipfile.ZipFile(wheel).namelist()
    assert f"one_kernel/build/{library.name}" in held and "one_kernel/spec.py" in held
    site = tmp_path / "site"
    install = [*pip, "install", "--no-deps", "--no-index", "--target", str(site), str(wheel)]
    subprocess.run(install, check=True, capture_output=True, timeout=300)
    for path in (*site.rglob("*"), site):
        path.chmod(path.stat().st_mode & ~0o222)
    command = [sys.executable, "-I", "-c", LOADED, str(site)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    told = [process.communicate(timeout=120)[0] for process in processes]
    for path in (site, *(p for p in site.rglob("*") if p.is_dir())):
        path.chmod(0o755)  # so that pytest can remove it
    assert [int(text) > 0 for text in told] == [True] * 3


def test_pip_is_told_the_archs(folder: Path, library: Path, tmp_path: Path) -> None:
    """`-C arch=`: the names that pip hands on."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import build\n"
        "build.build = lambda arch: print(arch) or build.library_path('sm_80')\n"
        "build.build_wheel(sys.argv[2], eval(sys.argv[3]))\n"
    )
    for given, archs in (
        ("None", ["sm_80"]), ("{'arch': 'sm_90,sm_80'}", ["sm_90", "sm_80"]),
        ("{'arch': 'all'}", list(content_archs(folder))),
    ):  # fmt: skip
        done = run(code, tmp_path, str(folder), str(tmp_path), given)
        assert done.stdout.split() == archs, done.stderr


def content_archs(folder: Path) -> dict[str, list[str]]:
    verdicts = json.loads((folder / "verdicts.json").read_text())
    archs: dict[str, list[str]] = verdicts["build"]["archs"]
    return archs
