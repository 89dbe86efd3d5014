"""The texts that turn a kernel's source into a library: translation units, dispatcher, flags.

Standard library only (Python 3.10): GPU jobs and exported packages carry this module and build with
it. Everything here is text in, text out.

The C ABI is one function over a plain struct:

    int cubridge_launch(const void* args, long long args_size, const char* specialisation,
                        void* stream)

0 is success, a positive number a cudaError_t, -1 an unknown specialisation, -2 an argument struct
of another size.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

UNKNOWN_SPECIALISATION = -1
WRONG_ARGS_SIZE = -2

# Element types by the name that a specialisation has for them.
_CPP_TYPES = {"f16": "cubridge::f16", "bf16": "cubridge::bf16", "f32": "float"}

# Size and alignment of a field's type in the argument struct. A tensor is its address and four
# strides in elements, outermost first.
_FIELD_LAYOUT = {"tensor": (40, 8), "i64": (8, 8), "i32": (4, 4), "f32": (4, 4)}

Fields = Sequence[tuple[str, str]]
"""Name and type ("tensor", "i32", "i64", "f32") of the argument struct's fields, in order."""


@dataclass(frozen=True)
class StructLayout:
    """Where the C++ compiler puts the fields of the argument struct, in bytes."""

    size: int
    offsets: tuple[tuple[str, int], ...]


def struct_layout(fields: Fields) -> StructLayout:
    """Natural alignment, as C++ and ctypes lay out a plain struct.

    Raises:
        ValueError: a type that the struct cannot have, or two fields of one name.
    """
    offsets: list[tuple[str, int]] = []
    at, widest = 0, 1
    for name, kind in fields:
        if kind not in _FIELD_LAYOUT:
            raise ValueError(f"field {name} has the unknown type {kind!r}")
        size, align = _FIELD_LAYOUT[kind]
        at = -(-at // align) * align
        offsets.append((name, at))
        at += size
        widest = max(widest, align)
    if len({name for name, _ in offsets}) != len(offsets):
        raise ValueError("two fields of the argument struct have one name")
    return StructLayout(-(-at // widest) * widest, tuple(offsets))


def template_arguments(specialisation: str) -> str:
    """`bf16_128` -> `cubridge::bf16, 128`.

    Raises:
        ValueError: a part that is neither an element type, an integer nor a bool.
    """
    out = []
    for part in specialisation.split("_"):
        if part in _CPP_TYPES:
            out.append(_CPP_TYPES[part])
        elif re.fullmatch(r"\d+|true|false", part):
            out.append(part)
        else:
            raise ValueError(f"specialisation {specialisation!r}: {part!r} is no value")
    return ", ".join(out)


def unit_text(
    specialisation: str, entry: str, fields: Fields | None = None, source: str = "kernel.cu"
) -> str:
    """The translation unit that instantiates `entry` for one specialisation."""
    return f'#include "{source}"\n\n' + unit_body(specialisation, entry, fields)


def unit_body(specialisation: str, entry: str, fields: Fields | None = None) -> str:
    """What a unit is beside the source that it includes.

    With `fields` it asserts that the struct in the source is the struct that callers fill.
    """
    lines = ["#include <cstddef>", ""]
    if fields is not None:
        layout = struct_layout(fields)
        lines.append(
            f"static_assert(sizeof(Args) == {layout.size}, "
            '"Args has another size than its signature");'
        )
        for name, offset in layout.offsets:
            lines.append(
                f"static_assert(offsetof(Args, {name}) == {offset}, "
                f'"Args::{name} is not where its signature has it");'
            )
        lines.append("")
    lines += [
        'extern "C" __attribute__((visibility("hidden")))',
        f"long long cubridge_args_size_{specialisation}() {{ return sizeof(Args); }}",
        "",
        'extern "C" __attribute__((visibility("hidden")))',
        f"int cubridge_launch_{specialisation}(const void* args, void* stream) {{",
        f"  return static_cast<int>({entry}<{template_arguments(specialisation)}>(",
        "      *static_cast<const Args*>(args), static_cast<cudaStream_t>(stream)));",
        "}",
    ]
    return "\n".join(lines) + "\n"


def dispatcher_text(specialisations: Sequence[str]) -> str:
    """The unit that exports the C ABI and picks the specialisation by name."""
    lines = ["#include <cstring>", "", "#include <cuda_runtime_api.h>", ""]
    for key in specialisations:
        lines.append(f'extern "C" long long cubridge_args_size_{key}();')
        lines.append(f'extern "C" int cubridge_launch_{key}(const void* args, void* stream);')
    lines += [
        "",
        'extern "C" __attribute__((visibility("default")))',
        "int cubridge_launch(const void* args, long long args_size, const char* specialisation,",
        "                    void* stream) {",
    ]
    for key in specialisations:
        lines += [
            f'  if (std::strcmp(specialisation, "{key}") == 0) {{',
            f"    if (args_size != cubridge_args_size_{key}()) return {WRONG_ARGS_SIZE};",
            f"    return cubridge_launch_{key}(args, stream);",
            "  }",
        ]
    lines += [
        f"  return {UNKNOWN_SPECIALISATION};",
        "}",
        "",
        'extern "C" __attribute__((visibility("default")))',
        f"long long cubridge_args_size() {{ return cubridge_args_size_{specialisations[0]}(); }}",
        "",
        'extern "C" __attribute__((visibility("default")))',
        "const char* cubridge_specialisations() {",
        f'  return "{" ".join(specialisations)}";',
        "}",
        "",
        "// What a status of cubridge_launch means; the text is the CUDA runtime's own.",
        'extern "C" __attribute__((visibility("default")))',
        "const char* cubridge_error_text(int status) {",
        f"  if (status == {UNKNOWN_SPECIALISATION})",
        '    return "the library has no such specialisation";',
        f"  if (status == {WRONG_ARGS_SIZE})",
        '    return "the argument struct has another size than the library has";',
        "  return cudaGetErrorString(static_cast<cudaError_t>(status));",
        "}",
    ]
    return "\n".join(lines) + "\n"


def arch_number(arch: str) -> int:
    """CUBRIDGE_ARCH of an arch: the compute capability times 100 ("sm_90a" -> 900)."""
    found = re.fullmatch(r"sm_(\d+)[af]?", arch)
    if not found:
        raise ValueError(f"{arch!r} is no arch such as sm_80 or sm_90a")
    return int(found[1]) * 10


def arch_flags(arch: str) -> tuple[str, ...]:
    """Machine code for exactly this arch, no PTX: what was checked is what runs."""
    number = arch.removeprefix("sm_")
    return (
        f"-gencode=arch=compute_{number},code=sm_{number}",
        f"-DCUBRIDGE_ARCH={arch_number(arch)}",
    )


COMPILE_FLAGS = (
    "-std=c++17",
    "-O3",
    "--expt-relaxed-constexpr",
    "-lineinfo",
    "-Xptxas",
    "-v",
    "-Xcompiler",
    "-fPIC,-fvisibility=hidden",
)
"""The flags of every translation unit, besides arch and include folders."""

LINK_FLAGS = ("-shared", "-cudart", "static")
"""The library brings its own CUDA runtime, which shares the process's primary context."""
