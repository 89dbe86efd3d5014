from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cuir.nodes import Field
from engine.lower.abi import (
    TENSOR_C,
    TensorArg,
    args_class,
    fill,
    layout,
    static_asserts,
    struct_text,
)

CC = shutil.which("g++") or shutil.which("c++") or shutil.which("clang++")
fields = st.lists(st.sampled_from(["tensor", "i32", "i64", "f32"]), max_size=12).map(
    lambda types: tuple(Field(f"f{i}", t) for i, t in enumerate(types))
)
FLASH = (
    *(Field(n, "tensor") for n in ("q", "k", "v", "o", "lse")),
    *(Field(n, "i32") for n in ("B", "Hq", "Hkv", "Nq", "Nk")),
    Field("scale", "f32"),
)


def compiles(tmp: Path, text: str) -> subprocess.CompletedProcess[str]:
    assert CC is not None
    path = tmp / "abi.cpp"
    path.write_text(text)
    command = [CC, "-std=c++17", "-fsyntax-only", str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_the_layout_of_the_flash_arguments() -> None:
    whole = layout(FLASH)
    assert whole.size == 5 * 40 + 6 * 4
    assert [s.offset for s in whole.slots][:6] == [0, 40, 80, 120, 160, 200]


def test_natural_alignment_leaves_gaps() -> None:
    whole = layout((Field("a", "i32"), Field("b", "i64"), Field("c", "f32")))
    assert [s.offset for s in whole.slots] == [0, 8, 16]
    assert whole.size == 24


@given(fields)
def test_ctypes_agrees(some: tuple[Field, ...]) -> None:
    cls, whole = args_class(some), layout(some)
    assert ctypes.sizeof(cls) == (whole.size if some else 0)
    for slot in whole.slots:
        described = getattr(cls, slot.name)
        assert (described.offset, described.size) == (slot.offset, slot.size)


@pytest.mark.skipif(CC is None, reason="no C++ compiler")
@settings(max_examples=6, deadline=None)
@given(some=fields)
def test_the_compiler_agrees(tmp_path_factory: pytest.TempPathFactory, some) -> None:  # type: ignore[no-untyped-def]
    head = f"#include <cstddef>\n{TENSOR_C}\n"
    text = head + struct_text(some) + static_asserts(some)
    done = compiles(tmp_path_factory.mktemp("abi"), text)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(CC is None, reason="no C++ compiler")
def test_another_struct_does_not_compile(tmp_path: Path) -> None:
    head = f"#include <cstddef>\n{TENSOR_C}\n"
    swapped = (FLASH[0], *reversed(FLASH[1:]))
    assert compiles(tmp_path, head + struct_text(swapped) + static_asserts(FLASH)).returncode != 0
    longer = (*FLASH, Field("window", "i64"))
    assert compiles(tmp_path, head + struct_text(longer) + static_asserts(FLASH)).returncode != 0


@pytest.mark.skipif(CC is None, reason="no C++ compiler")
def test_values_arrive(tmp_path: Path) -> None:
    assert CC is not None
    text = (
        f"#include <cstdio>\n{TENSOR_C}\n{struct_text(FLASH)}"
        'extern "C" double sum(const Args* a) {\n'
        "  return a->q.stride[0] + 10.0 * a->o.stride[3] + 100.0 * a->Nk + a->scale;\n}\n"
    )
    (tmp_path / "sum.cpp").write_text(text)
    library = tmp_path / "sum.so"
    command = [CC, "-shared", "-fPIC", "-o", str(library), str(tmp_path / "sum.cpp")]
    subprocess.run(command, check=True, timeout=60)
    values: dict[str, object] = {f.name: (0, (1, 2, 3, 4)) for f in FLASH if f.type == "tensor"}
    values |= {"B": 1, "Hq": 2, "Hkv": 1, "Nq": 5, "Nk": 7, "scale": 0.25}
    made = fill(args_class(FLASH), values)
    function = ctypes.CDLL(str(library)).sum
    function.restype = ctypes.c_double
    assert function(ctypes.byref(made)) == 1 + 40 + 700 + 0.25


def test_what_does_not_fit_is_refused() -> None:
    cls = args_class((Field("q", "tensor"), Field("n", "i32")))
    with pytest.raises(ValueError, match="missing"):
        fill(cls, {"n": 1})
    with pytest.raises(ValueError, match="unknown"):
        fill(cls, {"n": 1, "q": (0, ()), "x": 1})
    with pytest.raises(ValueError, match="fit"):
        fill(cls, {"n": 2**31, "q": (0, ())})
    with pytest.raises(ValueError, match="dimensions"):
        fill(cls, {"n": 1, "q": (0, (1, 2, 3, 4, 5))})
    assert ctypes.sizeof(TensorArg) == 40
