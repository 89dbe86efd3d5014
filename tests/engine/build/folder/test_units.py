"""The generated texts: struct layout as ctypes has it, keys, the module's independence."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.build.folder.units import (
    arch_flags,
    arch_number,
    dispatcher_text,
    struct_layout,
    template_arguments,
    unit_text,
)


class TensorArg(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("stride", ctypes.c_longlong * 4)]


CTYPES = {
    "tensor": TensorArg,
    "i32": ctypes.c_int32,
    "i64": ctypes.c_int64,
    "f32": ctypes.c_float,
}


@given(st.lists(st.sampled_from(sorted(CTYPES)), min_size=1, max_size=12))
def test_layout_is_that_of_ctypes(kinds: list[str]) -> None:
    fields = [(f"f{at}", kind) for at, kind in enumerate(kinds)]
    twin = type("Twin", (ctypes.Structure,), {"_fields_": [(n, CTYPES[k]) for n, k in fields]})
    layout = struct_layout(fields)
    assert layout.size == ctypes.sizeof(twin)
    assert dict(layout.offsets) == {name: getattr(twin, name).offset for name, _ in fields}


def test_layout_refuses_what_the_struct_cannot_have() -> None:
    with pytest.raises(ValueError, match="unknown type"):
        struct_layout([("x", "f64")])
    with pytest.raises(ValueError, match="one name"):
        struct_layout([("x", "i32"), ("x", "i32")])


def test_template_arguments() -> None:
    assert template_arguments("bf16_128") == "cubridge::bf16, 128"
    assert template_arguments("f32_64_true") == "float, 64, true"
    for wrong in ("", "bf16_", "int_64", "bf16_128; system(0)", "f16_-1"):
        with pytest.raises(ValueError, match="is no value"):
            template_arguments(wrong)


def test_units_name_their_specialisation() -> None:
    text = unit_text("f16_64", "launch", [("q", "tensor"), ("n", "i32")])
    assert "launch<cubridge::f16, 64>" in text
    assert "sizeof(Args) == 48" in text
    assert "offsetof(Args, n) == 40" in text
    assert "static_assert" not in unit_text("f16_64", "launch")
    assert dispatcher_text(["f16_64", "bf16_64"]).count("strcmp(") == 2


def test_archs() -> None:
    assert [arch_number(a) for a in ("sm_80", "sm_90a", "sm_120")] == [800, 900, 1200]
    assert arch_flags("sm_90a")[0] == "-gencode=arch=compute_90a,code=sm_90a"
    with pytest.raises(ValueError, match="no arch"):
        arch_number("compute_80")


def test_units_need_the_standard_library_alone(root: Path, tmp_path: Path) -> None:
    """GPU jobs and packages carry this file by itself."""
    alone = tmp_path / "units.py"
    alone.write_bytes((root / "engine" / "build" / "folder" / "units.py").read_bytes())
    code = (
        "import sys; before = set(sys.modules); import units; "
        "new = {m.split('.')[0] for m in set(sys.modules) - before}; "
        "print(sorted(new - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {code}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "['units']"
