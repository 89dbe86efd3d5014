"""Exported packages build by themselves, in a process that has never heard of CuBridge."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from engine.build.toolchain import Toolchain
from engine.package.export import export
from engine.package.texts import ninja_text
from tests.engine.package.conftest import content

# A plain process: the package's folder and torch, and a hostile engine/ in the current folder.
PLAIN = """
import sys
sys.path.insert(0, sys.argv[1])
import ctypes, torch
import one_kernel
from one_kernel import _library, build
from one_kernel._op import operator
ours = operator()
library = _library.load(sys.argv[2], ours.filler.struct)
empty = torch.empty(1, 1, 0, 64, dtype=torch.float16)
key = torch.empty(1, 1, 3, 64, dtype=torch.float16)
values = {"q": empty, "k": key, "v": key, "O": empty, "LSE": torch.empty(1, 1, 0)}
sizes, specialisation = ours.checks.check(values)
args = ours.filler.fill(values, sizes)
_library.launch(library, args, specialisation, 0)  # no rows: nothing is launched
# The whole way of a call, with the parts that need a GPU taken out.
from contextlib import nullcontext
from one_kernel import _op
_op.library = lambda device, struct: library
torch.cuda.device = lambda device: nullcontext()
torch.cuda.current_stream = lambda: type("Stream", (), {"cuda_stream": 0})
out, lse = ours.forward(empty, key, key)
assert (out.shape, lse.shape, lse.dtype) == (empty.shape, (1, 1, 0), torch.float32)
for wrong, key in ((args, "f16_65"), (ctypes.c_int(0), specialisation)):
    try:
        _library.launch(library, wrong, key, 0)
    except RuntimeError as error:
        print(error)
print(sorted(m for m in sys.modules if m.split(".")[0] in ("engine", "sessions", "cubridge_tui")))
"""


@pytest.fixture(scope="module")
def folder(root: Path, tmp_path_factory: pytest.TempPathFactory, toolchain: Toolchain) -> Path:
    made = content(root)
    only = tuple(s for s in made.specialisations if set(s.values()) == {"f16", "64"})
    return export(replace(made, specialisations=only), tmp_path_factory.mktemp("x") / "one_kernel")


def build(folder: Path, *arguments: str, path: str = "") -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PATH": os.pathsep.join(filter(None, [path, os.environ["PATH"]]))}
    return subprocess.run(
        [sys.executable, "-I", str(folder / "build.py"), *arguments],
        env=environ, cwd="/", capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def run_plain(folder: Path, library: str, tmp_path: Path) -> list[str]:
    hostile = tmp_path / "engine"
    hostile.mkdir()
    (hostile / "__init__.py").write_text("raise SystemExit('hostile')")
    done = subprocess.run(
        [sys.executable, "-I", "-c", PLAIN, str(folder.parent), library],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_with_ninja(folder: Path, tmp_path: Path) -> None:
    ninja = str(Path(sys.prefix) / "bin")
    done = build(folder, "--arch", "sm_80", path=ninja)
    assert done.returncode == 0, done.stderr
    library = Path(done.stdout.strip())
    assert library == folder / "build" / "sm_80" / "libone_kernel.so"
    before = library.stat().st_mtime_ns
    assert build(folder, "--arch", "sm_80", path=ninja).returncode == 0
    assert library.stat().st_mtime_ns == before
    unknown, wrong_size, modules = run_plain(folder, str(library), tmp_path)
    assert "no such specialisation" in unknown and "(status -1)" in unknown
    assert "another size" in wrong_size
    assert modules == "[]"


def test_without_ninja(folder: Path, tmp_path: Path) -> None:
    done = build(folder, "--arch", "sm_90", "--no-ninja")
    assert done.returncode == 0, done.stderr
    library = Path(done.stdout.strip())
    assert [p.name for p in library.parent.glob("*.part")] == []
    before = library.stat().st_mtime_ns
    assert build(folder, "--arch", "sm_90", "--no-ninja").returncode == 0
    assert library.stat().st_mtime_ns == before
    assert run_plain(folder, str(library), tmp_path)[-1] == "[]"


def test_a_library_of_another_struct_is_refused(folder: Path, tmp_path: Path) -> None:
    library = folder / "build" / "sm_80" / "libone_kernel.so"
    assert library.exists() or build(folder, "--arch", "sm_80").returncode == 0
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from one_kernel import _args, _library\n"
        "struct = _args.args_type([['q', 'tensor']])\n"
        "_library.load(sys.argv[2], struct)\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code, str(folder.parent), str(library)],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "takes a struct of" in done.stderr


def test_what_cannot_be_built_is_said(folder: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    subprocess.run(["cp", "-r", str(folder), str(broken)], check=True)
    source = broken / "csrc" / "kernel.cu"
    source.write_text(source.read_text().replace("copy_async(sQ", "copy_nonsense(sQ"))
    for more in ([], ["--no-ninja"]):
        done = build(broken, *more, path=str(Path(sys.prefix) / "bin"))
        assert done.returncode == 1
        assert "copy_nonsense" in done.stderr and "Traceback" not in done.stderr
    done = build(broken, "--arch", "sm_75")
    assert done.returncode == 2 and "sm_80" in done.stderr


def test_without_a_gpu_the_check_says_so(folder: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "one_kernel.check"],
        env={**os.environ, "PYTHONPATH": str(folder.parent)},
        cwd="/", capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (3, "")
    assert "no GPU" in done.stderr


def test_ninja_and_nvcc_do_the_same(folder: Path) -> None:
    """build.ninja and build.py say the same commands for every arch."""
    info = json.loads((folder / "package.json").read_text())
    text = ninja_text(info, [])
    for arch, flags in info["archs"].items():
        target = f"build build/{arch}/lib{info['name']}.so: link build/{arch}/f16_64.o"
        assert f"{target} build/{arch}/dispatcher.o\n  arch_flags = {' '.join(flags)}\n" in text
        assert f"build {arch}: phony" in text
    flags_line = re.search(r"^flags = (.*)$", text, re.MULTILINE)
    assert flags_line and flags_line[1].split() == info["compile"]
    assert text.rstrip().endswith(f"default {next(iter(info['archs']))}")


LOADED = """
import sys
sys.path.insert(0, sys.argv[1])
import pathlib
import torch
from one_kernel import _library, build
from one_kernel._op import operator

def refused(*given, **named):
    raise PermissionError("read-only")

def no_compiler():
    raise build.BuildError("there is no nvcc")

build.find_nvcc = no_compiler
build.fcntl.flock = pathlib.Path.mkdir = pathlib.Path.write_text = refused
torch.cuda.get_device_capability = lambda device: (8, 0)
try:
    loaded = _library.library(torch.device("cuda", 0), operator().filler.struct)
    print(loaded.cubridge_args_size())
except build.BuildError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("change", "loads"),
    [("nothing", True), ("newer sources", True), ("no hash", True), ("an edited source", False),
     ("an edited header", False), ("newer sources and no hash", False)],
)  # fmt: skip
def test_a_built_library_loads_without_nvcc_a_lock_or_leave_to_write(
    folder: Path, tmp_path: Path, change: str, loads: bool
) -> None:
    library = folder / "build" / "sm_80" / "libone_kernel.so"
    assert library.exists() or build(folder, "--arch", "sm_80").returncode == 0
    there = tmp_path / "one_kernel"
    shutil.copytree(folder, there)
    source = there / "csrc" / "kernel.cu"
    if "edited" in change:
        edited = source if "source" in change else next((there / "csrc").rglob("tile.cuh"))
        edited.write_text(edited.read_text() + "\n// edited\n")
    if "newer" in change:
        later = library.stat().st_mtime + 1000
        os.utime(source, (later, later))
    if "no hash" in change:
        (there / "build" / "sm_80" / "sources.sha256").unlink()
    done = subprocess.run(
        [sys.executable, "-I", "-c", LOADED, str(tmp_path)],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    if loads:
        assert int(done.stdout) > 0
    else:
        assert done.stdout.startswith("no library for sm_80 is built (the one that is there was")


def test_several_archs_at_once(folder: Path) -> None:
    done = build(folder, "--arch", "sm_80", "sm_90")
    assert done.returncode == 0, done.stderr
    made = [Path(line) for line in done.stdout.split()]
    assert [library.parent.name for library in made] == ["sm_80", "sm_90"]
    assert all((library.parent / "sources.sha256").is_file() for library in made)
