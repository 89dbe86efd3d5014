"""What was compiled before is taken from the cache, by the content of all that decides it; and what
nvcc advises where a source does not compile."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from engine.build.tools.toolchain import find_toolchain
from engine.errors import CuBridgeError, InputError
from engine.foreign.compile import Compiled, DoesNotCompile, Flags, advice, compile_kernel
from engine.foreign.launcher import read_launcher
from engine.foreign.record import launched

SOURCE = """\
#include "part.cuh"
__global__ void copy(const float* q, float* o) { o[threadIdx.x] = part(q[threadIdx.x]); }
void launch(const float* q, float* o, int N) { copy<<<1, 32>>>(q, o); }
"""
PART = "__device__ inline float part(float x) { return x + 1; }\n"


def test_an_equal_build_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        tools = find_toolchain()
    except CuBridgeError:
        pytest.skip("nvcc compiles the kernel of this test")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "far").mkdir()
    source, part, far = (tmp_path / name for name in ("theirs.cu", "part.cuh", "far/far.cuh"))
    source.write_text(SOURCE, "utf-8")
    part.write_text(f"#include <far.cuh>\n{PART}", "utf-8")
    far.write_text("__device__ inline float far(float x) { return x; }\n", "utf-8")
    entry = read_launcher(SOURCE, str(source), "launch", {}, "f32", {}, {})
    none = replace(tools, nvcc=replace(tools.nvcc, path=Path("/nonexistent/nvcc")))
    folders = [tmp_path / str(n) for n in range(5)]
    for folder in folders:
        folder.mkdir()
    flags = Flags("sm_80", (str(far.parent),))
    first = compile_kernel(source, entry, flags, tools, folders[0])
    again = compile_kernel(source, entry, flags, none, folders[1])
    assert set(again.module.kernels) == set(first.module.kernels)
    assert again.program.read_bytes() == first.program.read_bytes()
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "far").mkdir(parents=True)
    for file in (source, part, far):
        shutil.copy(file, elsewhere / file.relative_to(tmp_path))
    there = replace(flags, includes=(str(elsewhere / "far"),))  # a copy of an include folder, too
    compile_kernel(elsewhere / source.name, entry, there, none, folders[4])
    ptx = (folders[4] / "kept" / "driver.ptx").read_text("utf-8")
    assert f'"{elsewhere}/theirs.cu"' in ptx and f'"{source}"' not in ptx
    part.write_text(
        f"#include <far.cuh>\n{PART.replace('1', 'y')}", "utf-8"
    )  # a header is part of the content
    with pytest.raises(DoesNotCompile, match="does not compile"):
        compile_kernel(source, entry, flags, tools, folders[2])
    with pytest.raises(DoesNotCompile, match="does not compile"):
        compile_kernel(source, entry, flags, none, folders[3])
    assert len(list((tmp_path / "cache").rglob("recorder.o"))) == 1  # for all of them


def test_a_source_whose_name_cannot_be_included_and_a_full_disk_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        tools = find_toolchain()
    except CuBridgeError:
        pytest.skip("nvcc compiles the kernel of this test")
    text = "void launch(const float* q, float* o) { x(); }"
    entry = read_launcher(text, "theirs.cu", "launch", {}, "f32")
    for name, message in (('a"b.cu', "nvcc includes no file"), ("full.cu", "there is no room in")):
        (tmp_path / name).write_text(text, "utf-8")
        monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
        with pytest.raises(InputError, match=message):
            compile_kernel(tmp_path / name, entry, Flags("sm_80"), tools, tmp_path)
    # The cache's disk, where the recorder is compiled.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    fails = replace(tools, nvcc=replace(tools.nvcc, path=Path("/bin/false")))
    with pytest.raises(InputError, match=f"no room in {tmp_path / 'cache'}") as error:
        compile_kernel(tmp_path / "full.cu", entry, Flags("sm_80"), fails, tmp_path)
    assert "XDG_CACHE_HOME" in (error.value.fix or "")


def test_names_of_an_anonymous_namespace_are_of_every_build(tmp_path: Path) -> None:
    """nvcc puts digits into them that differ with folder and flags: a kernel is launched by its
    name, and probing compiles it a second time."""
    try:
        tools = find_toolchain()
    except CuBridgeError:
        pytest.skip("nvcc compiles the kernel of this test")
    text = SOURCE.replace('#include "part.cuh"\n', f"namespace {{ {PART}")
    text = text.replace("\nvoid launch", "}\nvoid launch")
    (tmp_path / "theirs.cu").write_text(text, "utf-8")
    entry = read_launcher(text, "theirs.cu", "launch", {}, "f32")
    made: list[Compiled] = []
    for name, flags in (("a", ()), ("b", ("X",))):
        (tmp_path / name).mkdir()
        made.append(compile_kernel(tmp_path / "theirs.cu", entry, Flags("sm_80", macros=flags),
                                   tools, tmp_path / name))  # fmt: skip
    one, two = made
    assert set(one.module.kernels) == set(two.module.kernels)
    mixed = replace(two, module=one.module)  # what is observed is of another build than the program
    assert launched(mixed, entry, {"N": 32}, {}, "sm_80", tmp_path) == set(one.module.kernels)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            'asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");',
            "theirs.cu:2:",
        ),
        (
            "__shared__ float big[16384]; big[threadIdx.x] = 1; __syncthreads(); "
            "o[threadIdx.x] = big[31 - threadIdx.x];",
            "Entry function 'copy' uses too much shared data",
        ),
    ],
)
def test_what_ptxas_refuses_is_told_at_its_line(tmp_path: Path, body: str, words: str) -> None:
    try:
        tools = find_toolchain()
    except CuBridgeError:
        pytest.skip("nvcc compiles the kernel of this test")
    source = tmp_path / "theirs.cu"
    text = f"""__global__ void copy(float* o) {{
  {body}
}}
void launch(float* o, int N) {{ copy<<<1, 32>>>(o); }}
"""
    source.write_text(text, "utf-8")
    entry = read_launcher(text, str(source), "launch", {}, "f32", {}, {})
    with pytest.raises(DoesNotCompile, match="ptxas does not assemble") as refused:
        compile_kernel(source, entry, Flags("sm_80"), tools, tmp_path)
    assert words in str(refused.value) and "theirs.cu:" in str(refused.value)


def test_a_launcher_is_called_where_it_is_whatever_macros_the_source_has(tmp_path: Path) -> None:
    try:
        tools = find_toolchain()
    except CuBridgeError:
        pytest.skip("nvcc compiles the kernel of this test")
    text = """#define T float
#define R 1
#define I 2
__global__ void copy(float* o) { *o = R; }
class Copy {
 public:
  static void launch(T* o, int N) { copy<<<1, N>>>(o); }
};
"""
    source = tmp_path / "theirs.cu"
    source.write_text(text, "utf-8")
    entry = read_launcher(text, str(source), "launch", {}, "f32")
    made = compile_kernel(source, entry, Flags("sm_80"), tools, tmp_path)
    assert launched(made, entry, {"N": 32}, {}, "sm_80", tmp_path) == set(made.module.kernels)
    source.write_text(text.replace(" public:\n", ""), "utf-8")
    with pytest.raises(DoesNotCompile, match=r"Copy::launch of \S+ cannot be called: .*inacc"):
        compile_kernel(source, entry, Flags("sm_80"), tools, tmp_path)


@pytest.mark.parametrize(
    ("said", "fix"),
    [
        (
            "a.cuh(2): error: calling a constexpr __host__ function is not allowed. The "
            "experimental flag '--expt-relaxed-constexpr' can be used to allow this.",
            "--nvcc=--expt-relaxed-constexpr",
        ),
        (
            "a.cuh(8): error: annotation on lambda requires --extended-lambda nvcc flag",
            "--nvcc=--extended-lambda",
        ),
        (
            "k.cu:1:10: fatal error: cute/tensor.hpp: No such file or directory",
            "-I FOLDER, of the folder that has cute/tensor.hpp",
        ),
        ('a.cu(1): error: identifier "x" is undefined', ""),
    ],
)
def test_advice(said: str, fix: str) -> None:
    assert advice(said) == fix
