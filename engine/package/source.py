"""`kernel.cu` of a package: the judged files in one, and the C functions that call them."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from engine.build.folder.units import Fields, dispatcher_text, unit_body
from engine.package.fields import c_fields, field_comments

END = "// --- the end of what was judged ---"


def source_text(
    folded: bytes, info: Mapping[str, Any], entry: str, fields: Fields, kernel: str
) -> bytes:
    """The folded source between two comments, then a C function for each specialisation.

    CUBRIDGE_UNIT picks one of them, so that several compilers can share the work; without it one
    command builds the library. A unit is to the compiler what the gates compiled.
    """
    keys = list(info["specialisations"])
    parts = [
        f"#if !defined(CUBRIDGE_UNIT) || CUBRIDGE_UNIT == {n}\n{text}#endif\n"
        for n, text in enumerate(
            [*(unit_body(key, entry, fields) for key in keys), dispatcher_text(keys)]
        )
    ]
    tail = _tail(info, keys[0]) + "\n".join(parts)
    return _head(kernel).encode() + folded + tail.encode()


BEGIN = "// --- the judged files begin ---\n"


def _head(kernel: str) -> str:
    name = " ".join(kernel.split())
    return f"""\
// Made by CuBridge of the expert kernel {name} and of the headers that it includes. Their bytes are
// all here, and verdicts.json has the hash of each: a header stands between its "//>> #include" and
// the "//<<" that names it, and "//== " stands before a line that is a comment only here. The
// comments are the kernel's own: what they say of the whole, they say of that kernel.
{BEGIN}"""


def _tail(info: Mapping[str, Any], key: str) -> str:
    members = f"struct Args {{ {c_fields(info['fields'])} }};"
    struct = textwrap.fill(
        members, 96, initial_indent="//   ", subsequent_indent="//     ", break_long_words=False
    )
    return f"""
{END}

// The library's C functions. Without torch, fill this struct and call:
//
//   struct TensorArg {{ void* data; long long stride[4]; }};
{struct}
//   int cubridge_launch(const struct Args* args, long long args_size,
//                       const char* specialisation /* "{key}" */, void* stream);
//
// Pointers are to the device's memory, strides in elements, outermost dimension first. 0 is
// success, a positive number CUDA's error. What each field holds:
//
{field_comments(info)}

"""
