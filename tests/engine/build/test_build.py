"""Real builds with nvcc: the ABI, the cache, messages at their lines, cancelling."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.build.build import build
from engine.build.folder import cache as caches
from engine.build.machine_code.compare import Loss, compare
from engine.build.machine_code.products import Launch
from engine.build.machine_code.result import BuildResult
from engine.build.tools.diagnostics import parse_diagnostics
from engine.build.tools.toolchain import Toolchain
from engine.cuir.arch import archs
from engine.errors import InputError, Interrupted, MissingTool, Where
from engine.lift.files.kernel_package import load_package
from tests.engine.build.folder.test_units import CTYPES

FIELDS = (("x", "tensor"), ("n", "i32"), ("scale", "f32"))
Build = Callable[..., BuildResult]


@pytest.fixture
def make(toolchain: Toolchain, include: Path, tmp_path: Path, scale_source: str) -> Build:
    def run(source: str = scale_source, keys: tuple[str, ...] = ("f16_64",), **more: Any) -> Any:
        given: dict[str, Any] = {"cache": tmp_path / "cache", "fields": FIELDS} | more
        tools = given.pop("toolchain", toolchain)
        return build(source.encode(), include, "launch", keys, "sm_80", tools, **given)

    return run


class Args(ctypes.Structure):
    _fields_ = [(name, CTYPES[kind]) for name, kind in FIELDS]


def test_the_library_keeps_the_abi(make: Build) -> None:
    built = make(keys=("f16_64", "bf16_32"))
    assert built.ok and built.library is not None
    library = ctypes.CDLL(str(built.library))
    args, size = Args(n=0), ctypes.c_longlong(ctypes.sizeof(Args))
    assert library.cubridge_launch(ctypes.byref(args), size, b"f16_64", None) == 0
    assert library.cubridge_launch(ctypes.byref(args), size, b"f16_65", None) == -1
    short = ctypes.c_longlong(ctypes.sizeof(Args) - 8)
    assert library.cubridge_launch(ctypes.byref(args), short, b"bf16_32", None) == -2
    library.cubridge_args_size.restype = ctypes.c_longlong
    assert library.cubridge_args_size() == ctypes.sizeof(Args)
    library.cubridge_error_text.restype = ctypes.c_char_p
    assert library.cubridge_error_text(1) == b"invalid argument"
    assert b"no such specialisation" in library.cubridge_error_text(-1)
    library.cubridge_specialisations.restype = ctypes.c_char_p
    assert library.cubridge_specialisations() == b"f16_64 bf16_32"


def test_what_it_says_of_the_machine_code(make: Build, toolchain: Toolchain) -> None:
    built = make(compile_only=True, launches={"f16_64": {"scale_rows": Launch(shared=100_000)}})
    (kernel,) = built.specialisations[0].kernels
    assert (kernel.name, kernel.threads, kernel.dynamic_shared) == ("scale_rows", 64, 100_000)
    assert kernel.use.registers > 0 and kernel.use.spill_store_bytes == 0
    assert kernel.residency is not None and kernel.residency.blocks == 1
    if toolchain.nvdisasm or toolchain.cuobjdump:
        assert built.specialisations[0].counted_in == "sass"
        assert kernel.instructions["EXIT"] >= 1
    assert built.library is None
    assert built.to_json()["specialisations"][0]["kernels"][0]["resident_limit"] == "shared"


def test_the_second_time_is_a_no_op(make: Build) -> None:
    said: list[str] = []
    objects = make(compile_only=True, progress=said.append)
    assert objects.compiled == 1
    assert said == ["0 of 1 compiled", "1 of 1 compiled"]
    assert make().compiled == 2  # the dispatcher and the link: the object is there
    again = make()
    assert again.compiled == 0 and again.seconds < 2
    assert make(keys=("f16_64", "f16_32")).compiled == 3
    assert make(keys=("f16_64", "f16_32")).digest == objects.digest


def test_any_content_makes_another_build(make: Build, include: Path, scale_source: str) -> None:
    first = make(compile_only=True)
    assert make(scale_source + "\n", compile_only=True).digest != first.digest
    unused = include / "unused.cuh"
    unused.write_text("#error\n")
    assert make(compile_only=True).compiled == 0
    header = include / "cubridge" / "small.cuh"
    header.write_text(header.read_text().replace("x + x", "x * X(2)"))
    changed = make(compile_only=True)
    assert changed.digest != first.digest and changed.compiled == 1


def test_headers_may_be_given_by_name(
    toolchain: Toolchain, include: Path, tmp_path: Path, scale_source: str
) -> None:
    name = "cubridge/small.cuh"
    headers = [(name, (include / name).read_bytes())]
    built = build(
        scale_source.encode(), headers, "launch", ["f16_64"], "sm_80", toolchain,
        cache=tmp_path / "cache", compile_only=True,
    )  # fmt: skip
    assert built.ok


def test_an_error_names_line_and_column(make: Build, scale_source: str) -> None:
    source = scale_source.replace("* args.scale;", "* args.skale;")
    built = make(source, keys=("f16_64", "f16_32"))
    assert not built.ok and built.library is None
    line = source.splitlines().index("    x[i] = twice(static_cast<float>(x[i])) * args.skale;")
    column = source.splitlines()[line].index("skale") + 1
    # Both specialisations say it; it is one error.
    assert [error.where for error in built.errors] == [Where("kernel.cu", line + 1, column)]
    assert "skale" in built.reason and built.reason.startswith("kernel.cu:")


def test_an_error_in_a_header_names_the_line_that_led_there(make: Build, scale_source: str) -> None:
    source = scale_source.replace("twice(static_cast<float>(x[i]))", "(twice(nullptr), 1.0f)")
    built = make(source)
    (error,) = [e for e in built.errors if e.origin.startswith("cubridge/small.cuh:")]
    assert error.where is not None and error.where.file == "kernel.cu"
    assert error.where.line is not None
    assert "twice(nullptr)" in source.splitlines()[error.where.line - 1]


def test_an_error_of_ptxas_is_led_back(make: Build, scale_source: str) -> None:
    broken = '    asm volatile("mov.f32 %0, %%nonsense;" : "=f"(y));'
    source = scale_source.replace(
        "    x[i] = twice", f"    float y;\n{broken}\n    x[i] = y + twice"
    )
    built = make(source)
    line = source.splitlines().index(broken) + 1
    where = built.errors[0].where
    assert where is not None and (where.file, where.line) == ("kernel.cu", line)


def test_a_function_in_every_object_is_explained(make: Build, scale_source: str) -> None:
    source = scale_source + "\nint plain_host_function(int n) { return n + 1; }\n"
    built = make(source, keys=("f16_64", "f16_32"))
    assert not built.ok
    (error,) = [e for e in built.errors if e.where]
    assert "make it a template, static or inline" in error.message
    assert error.where is not None and error.where.line == source.count("\n")


def test_a_struct_other_than_its_signature_does_not_build(make: Build) -> None:
    swapped = (FIELDS[0], FIELDS[2], FIELDS[1])
    built = make(fields=swapped)
    assert any("Args::n is not where its signature has it" in e.message for e in built.errors)
    longer = (*FIELDS, ("slope", "tensor"))
    assert any("another size" in e.message for e in make(fields=longer).errors)


def test_wrong_input(make: Build, scale_source: str, toolchain: Toolchain, include: Path) -> None:
    with pytest.raises(InputError, match="no specialisation to build"):
        make(keys=())
    with pytest.raises(InputError, match="is no value"):
        make(keys=("f16_64; rm",))
    with pytest.raises(InputError, match=r"kernel\.cu:1: .*there is no such header"):
        make(scale_source.replace("small.cuh", "none.cuh"))
    with pytest.raises(InputError, match="unknown arch"):
        build(b"", include, "launch", ["f16_64"], "sm_12", toolchain)
    old = toolchain.archs
    if "sm_75" not in old:
        with pytest.raises(MissingTool, match="does not build for sm_75"):
            build(b"", include, "launch", ["f16_64"], "sm_75", toolchain)


def test_cancel_stops_nvcc_and_the_next_build_is_whole(make: Build, scale_source: str) -> None:
    cancel = threading.Event()
    begin = time.monotonic()
    threading.Timer(0.4, cancel.set).start()
    # Unrolled so far that the front end is busy for long.
    slow = scale_source.replace(
        "x[i] = twice",
        "float y = 0;\n#pragma unroll\n    for (int k = 0; k < 20000; ++k) y = sinf(y) * k;\n"
        "    x[i] = y + twice",
    )
    with pytest.raises(Interrupted):
        make(slow, cancel=cancel)
    assert time.monotonic() - begin < 4
    assert make().ok


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        ("sh -c 'kill -9 $$'; exit 137", "cicc, or nvcc itself, died due to signal 9"),
        ("kill -9 $$", "nvcc"),
        ("echo \"nvcc error   : 'ptxas' died due to signal 15\"; exit 15", "'ptxas' died due to"),
        ("kill -9 $(cut -d ' ' -f 4 /proc/$PPID/stat); exit 1", "ninja died due to signal 9"),
    ],
)
def test_a_killed_compiler_is_named_and_the_next_build_is_whole(
    ending: str, words: str, make: Build, toolchain: Toolchain, tmp_path: Path
) -> None:
    nvcc = tmp_path / "nvcc"
    nvcc.write_text(f"#!/bin/sh\n{ending}\n")
    nvcc.chmod(0o755)
    killed = replace(toolchain, nvcc=replace(toolchain.nvcc, path=nvcc))

    def build_with(tools: Toolchain) -> BuildResult:
        return make(toolchain=tools, compile_only=True)

    found = build_with(killed)
    assert not found.ok and found.killed
    assert words in found.reason and "signal" in found.reason
    assert build_with(toolchain).ok


def test_an_error_of_the_text_outweighs_a_killed_compiler() -> None:
    log = 'Killed\nkernel.cu(3): error: identifier "x" is undefined\n'
    found = parse_diagnostics(log, "\n\nx\n")
    assert [d.killed for d in found] == [True, False]
    result = BuildResult(False, "sm_80", "nvcc", "", None, (), found, log, 1, 0.0)
    assert not result.killed and "undefined" in result.reason


def test_two_at_a_time_build_once(make: Build) -> None:
    results: list[BuildResult] = []
    workers = [threading.Thread(target=lambda: results.append(make())) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert all(r.ok for r in results)
    assert sorted(r.compiled for r in results) == [0, 3]


def test_foreign_flags_take_no_part(make: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "--no-such-flag")
    assert make(compile_only=True).ok


def test_a_folder_with_spaces(
    toolchain: Toolchain, include: Path, tmp_path: Path, scale_source: str
) -> None:
    built = build(
        scale_source.encode(), include, "launch", ["f16_64"], "sm_80", toolchain,
        cache=tmp_path / "a cache $HOME & co",
    )  # fmt: skip
    assert built.ok and built.library is not None and built.library.exists()


def test_losses_of_real_code(make: Build, scale_source: str) -> None:
    array = scale_source.replace(
        "x[i] = twice",
        "float v[100]; for (int k = 0; k < 100; ++k) v[k] = x[k]; x[i] = v[args.n % 100] + twice",
    )
    expert, lowered = make(compile_only=True), make(array, compile_only=True)
    assert [p.loss for p in compare(expert, lowered)] == [Loss.LOCAL_MEMORY]


def test_old_builds_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "_MOST_BUILDS", 3)
    for number in range(6):
        folder = tmp_path / f"b{number}"
        with caches.locked(folder, None):
            pass
        os.utime(folder / ".lock", (number, number))
    with caches.locked(tmp_path / "b1", None):  # in use: another process's
        os.utime(tmp_path / "b1" / ".lock", (1, 1))
        caches.prune(tmp_path, tmp_path / "b0")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["b0", "b1", "b3", "b4", "b5"]


def test_the_bundled_kernel_keeps_its_tensor_cores(toolchain: Toolchain, tmp_path: Path) -> None:
    package = load_package("flash_fwd_sm80")
    begin = time.monotonic()
    built = build(
        package.source, package.headers, package.entry, ["bf16_128"], "sm_80", toolchain,
        cache=tmp_path / "cache", compile_only=True,
    )  # fmt: skip
    assert built.ok, built.reason
    assert time.monotonic() - begin < 15
    (kernel,) = built.specialisations[0].kernels
    assert kernel.instructions["HMMA"] >= 128
    assert kernel.instructions["LDSM"] and kernel.instructions["LDGSTS"]
    assert kernel.use.spill_store_bytes == 0 and kernel.use.stack_bytes == 0
    assert set(package.archs) <= set(archs())
