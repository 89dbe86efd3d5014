"""Finding nvcc, with compilers of our own that answer as nvcc does, and with the real one."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.build.tools import toolchain as tools
from engine.build.tools.toolchain import Origin, Toolchain, find_toolchain
from engine.errors import MissingTool

NVCC = """#!/bin/sh
case "$1" in
--version) echo 'nvcc: NVIDIA (R) Cuda compiler driver'
  echo 'Cuda compilation tools, release {release}, V{release}.88'
  echo 'Build cuda_{release}.r{release}/compiler.1_0' ;;
--list-gpu-code) printf 'sm_120\\nsm_80\\nsm_90\\nsm_100\\n' ;;
--dryrun) echo '#$ _THERE_={folder}' >&2 ;;
esac
"""


def put(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def put_nvcc(folder: Path, release: str, runs_from: Path | None = None) -> Path:
    return put(folder / "nvcc", NVCC.format(release=release, folder=runs_from or folder))


@pytest.fixture
def places(tmp_path: Path) -> dict[str, Path]:
    """A toolkit for CUDA_HOME, one on PATH, one in wheels, told apart by their release."""
    home, path = tmp_path / "home", tmp_path / "path"
    site = tmp_path / "site-packages"
    put_nvcc(home / "bin", "12.9")
    put_nvcc(path / "bin", "13.1")
    put_nvcc(site / "nvidia" / "cu13" / "bin", "13.0")
    return {"home": home, "path": path / "bin", "site": site}


def find(places: dict[str, Path], *use: str) -> Toolchain:
    environ = {"PATH": str(places["path"]) if "path" in use else ""}
    if "home" in use:
        environ["CUDA_HOME"] = str(places["home"])
    return find_toolchain(environ, [str(places["site"])] if "site" in use else [])


@pytest.mark.parametrize(
    ("use", "release", "origin"),
    [
        (("home", "path", "site"), (12, 9, 88), Origin.CUDA_HOME),
        (("path", "site"), (13, 1, 88), Origin.PATH),
        (("site",), (13, 0, 88), Origin.WHEELS),
    ],
)
def test_the_order_is_cuda_home_path_wheels(
    places: dict[str, Path], use: tuple[str, ...], release: tuple[int, ...], origin: Origin
) -> None:
    found = find(places, *use)
    assert (found.version, found.nvcc.origin) == (release, origin)


def test_what_it_says_of_itself(places: dict[str, Path]) -> None:
    found = find(places, "site")
    assert found.archs == ("sm_80", "sm_90", "sm_100", "sm_120")
    assert found.version_text == "13.0.88"
    assert found.identity == "nvcc 13.0.88 cuda_13.0.r13.0/compiler.1_0"


def test_nothing_found_says_what_to_type(places: dict[str, Path]) -> None:
    with pytest.raises(MissingTool) as caught:
        find(places)
    assert caught.value.exit_code == 3
    assert caught.value.fix


def test_a_compiler_that_does_not_run_is_passed_over(places: dict[str, Path]) -> None:
    put(places["home"] / "bin" / "nvcc", "#!/bin/sh\necho broken >&2\nexit 1\n")
    assert find(places, "home", "path").nvcc.origin is Origin.PATH
    with pytest.raises(MissingTool, match="broken"):
        find(places, "home")
    put(places["home"] / "bin" / "nvcc", "#!/bin/sh\necho something else\n")
    with pytest.raises(MissingTool, match="is not nvcc's"):
        find(places, "home")


def test_a_cuda_home_without_nvcc_is_named(places: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(MissingTool, match=r"CUDA_HOME is .* holds no bin/nvcc"):
        find_toolchain({"PATH": "", "CUDA_HOME": str(tmp_path / "nothing")}, [])


def test_the_current_folder_is_never_searched(
    places: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(places["site"])
    with pytest.raises(MissingTool):
        find_toolchain({"PATH": ""}, ["", str(places["site"].parent)])


def test_tools_come_from_the_toolkit_itself_then_path_then_wheels(
    places: dict[str, Path], tmp_path: Path
) -> None:
    # What is on PATH is a wrapper; the toolkit it runs lies elsewhere.
    toolkit = tmp_path / "toolkit" / "bin"
    ptxas = put(toolkit / "ptxas")
    put_nvcc(places["path"], "13.1", runs_from=toolkit)
    put(places["path"] / "ptxas")
    cuobjdump = put(places["path"] / "cuobjdump")
    nvdisasm = put(places["site"] / "nvidia" / "cu13" / "bin" / "nvdisasm")
    found = find(places, "path", "site")
    assert found.root == toolkit.parent
    assert found.ptxas == tools.Tool(ptxas, Origin.TOOLKIT)
    assert found.cuobjdump == tools.Tool(cuobjdump, Origin.PATH)
    assert found.nvdisasm == tools.Tool(nvdisasm, Origin.WHEELS)


def test_architectures(places: dict[str, Path]) -> None:
    found = find(places, "site")
    assert all(map(found.supports, ["sm_80", "sm_90", "sm_90a", "sm_100a", "sm_100f"]))
    assert not any(map(found.supports, ["sm_75", "sm_80a", "sm_90f", "compute_80", "sm_", "80"]))
    with pytest.raises(MissingTool, match="does not build for sm_75"):
        found.require_arch("sm_75")


def test_link_flags_name_the_libraries_of_wheels_only(places: dict[str, Path]) -> None:
    library = put(places["site"] / "nvidia" / "cu13" / "lib" / "libcudart_static.a")
    assert find(places, "site").link_flags == (f"-L{library.parent}",)
    assert find(places, "home").link_flags == ()


def test_ninja_and_host_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    with pytest.raises(MissingTool, match="ninja"):
        tools.find_ninja({"PATH": ""})
    on_path = put(tmp_path / "bin" / "ninja")
    assert tools.find_ninja({"PATH": str(on_path.parent)}) == on_path
    ours = put(tmp_path / "prefix" / "bin" / "ninja")
    assert tools.find_ninja({"PATH": str(on_path.parent)}) == ours

    with pytest.raises(MissingTool, match=r"\(clang-99\) is missing"):
        tools.find_host_compiler({"PATH": str(tmp_path), "NVCC_CCBIN": "clang-99"})
    compiler = put(tmp_path / "bin" / "g++")
    assert tools.find_host_compiler({"PATH": str(compiler.parent)}) == compiler


SOURCE = """
#include <cuda_bf16.h>
#include <cuda_fp16.h>
__global__ void twice(__half* x, __nv_bfloat16* y) {
  x[0] = __hadd(x[0], x[0]);
  y[0] = y[0] * y[0];
}
extern "C" int answer() { return sizeof(&twice) ? 42 : 0; }
"""


def build_and_call(found: Toolchain, environ: dict[str, str], folder: Path) -> None:
    source, library = folder / "k.cu", folder / "k.so"
    source.write_text(SOURCE)
    command = [str(found.nvcc.path), *found.link_flags, "-arch=sm_80", "-shared"]
    subprocess.run(
        [*command, "-Xcompiler", "-fPIC", "-o", str(library), str(source)],
        env=tools.compiler_environ(environ),
        check=True,
    )
    assert ctypes.CDLL(str(library)).answer() == 42


def test_the_real_compiler_builds(toolchain: Toolchain, tmp_path: Path) -> None:
    assert toolchain.supports("sm_80")
    build_and_call(toolchain, dict(os.environ), tmp_path)


def has_cuda_extra() -> bool:
    try:
        return bool(importlib.metadata.version("nvidia-cuda-nvcc"))
    except importlib.metadata.PackageNotFoundError:
        return False


@pytest.mark.extras
@pytest.mark.skipif(not has_cuda_extra(), reason="the cuda extra is not installed here")
def test_the_wheels_build_with_path_and_cuda_home_emptied(tmp_path: Path) -> None:
    environ = {**os.environ, "PATH": "", "CUDA_HOME": ""}
    found = find_toolchain(environ)
    assert found.nvcc.origin is Origin.WHEELS
    build_and_call(found, environ, tmp_path)
    for tool in (found.cuobjdump, found.nvdisasm, found.ptxas):
        assert tool is not None
        subprocess.run([tool.path, "--version"], env=environ, check=True, capture_output=True)
    listed = subprocess.run(
        [found.cuobjdump.path, "-sass", str(tmp_path / "k.so")],
        env=environ,
        check=True,
        capture_output=True,
        text=True,
    )
    assert "sm_80" in listed.stdout
