"""A source gives no name of the kernel language a second meaning, and includes what is known.

Each text here compiles, or would in another file: C++ overloads, specialises or replaces what the
catalogue has one meaning for.
"""

from __future__ import annotations

import re

import pytest

from engine.errors import LiftError
from engine.lift.names.catalogue import default_catalogue
from engine.lift.names.headers import bundled_headers, check_own_header, header_names, meant
from engine.resources import include_dir
from tests.engine.lift.sources import lift_body, text_of_body

SECOND_MEANINGS = [
    "__device__ int floor_div(long long a, long long b) { return 0; }",
    "__device__ void sync() { }",
    "__device__ float* exp2(float x) { return nullptr; }",
    "template <> __device__ int cubridge::ceil_div<int>(int a, int b) { return 7; }",
    "template <> __device__ int ceil_div<int>(int a, int b) { return 7; }",
    "namespace cubridge::detail { __device__ int load_if(int a) { return 7; } }",
    "namespace other { __device__ int max(int a, int b) { return 7; } }",
    "template <typename T> __device__ void copy_async_unrolled(const T& a) { }",
    "__device__ int pow(long long a, long long b) { return 7; }",
    "__device__ int __ffs(long long a) { return 7; }",
    "extern int min(int, int);",
    "int (*max)(int, int);",
    "using std::max;",
    "using bf16 = float;",
    "typedef float bf16;",
    "using int32_t = long long;",
    "__device__ void own() { using int32_t = long long; }",
    "__device__ void own() { typedef double float; }",
    "struct map { int x; };",
    "struct cubridge::Tile<int> { };",
    "template <typename T> struct Shared<T, 1, 2> { };",
    "enum { sync = 3 };",
    "__device__ int zeros[3];",
    "constexpr float LOG2E = 1.0f;",
    "#if 1\n__device__ int min(int a, int b) { return 7; }\n#endif",
    "#define exp2(x) ((x) * (x))",
    "#define sync nothing",
    "#define float int",
    "#define if while",
    "#undef LOG2E",
]


@pytest.mark.parametrize("before", SECOND_MEANINGS)
def test_a_second_meaning_is_refused(before: str) -> None:
    with pytest.raises(LiftError, match="has a meaning already") as caught:
        lift_body("sync();", before)
    assert caught.value.where is not None and caught.value.where.line == 6


@pytest.mark.parametrize(
    "second",
    [
        "__device__ int helper(long long i) { return 1; }",
        "template <int A> __device__ int helper(int i) { return 1; }",
        "namespace other { __device__ int helper(float i) { return 1; } }",
    ],
)
def test_overloads_of_a_function_are_refused(second: str) -> None:
    with pytest.raises(LiftError, match="`helper` is defined twice"):
        lift_body("sync();", second)


INCLUDES = [
    ('#include "cubridge/../../evil.cuh"', "is not known"),
    ('#include "cubridge/./sm80.cuh"', "is not known"),
    ("#include <evil.cuh>", "is not known"),
    ("#include <../evil.cuh>", "is not known"),
    ('# /* */ include "more/evil.cuh"', "is not known"),
    ('#if 1\n#include "../evil.cuh"\n#endif', "is not known"),
    ('#define ALSO "cubridge/sm80.cuh"\n#include ALSO', "by a macro"),
    ('#define ROWS 4\n#include "cubridge/sm90.cuh"', "the macro `ROWS` changes"),
    ('#define __half2float(x) 0.0f\n#include "cubridge/sm90.cuh"', "the macro `__half2float`"),
]


@pytest.mark.parametrize(("before", "words"), INCLUDES)
def test_only_known_headers_are_included(before: str, words: str) -> None:
    with pytest.raises(LiftError, match=words):
        lift_body("sync();", before)


SECOND_MEANINGS = [
    ("__device__ int floor_div(long long a, long long b) { return 1; }", "floor_div"),
    ("namespace shop { template <class S> __device__ void gemm(S& s) {} }", "gemm"),
    ("struct A { Tile<L> exp2(int i); };", "exp2"),
    ("#define min(a, b) a", "min"),
    ("using bf16 = float;", "bf16"),
    ("__device__ float operator*(Tile a, Tile b);", "operator"),
]


@pytest.mark.parametrize(("text", "name"), SECOND_MEANINGS)
def test_a_header_beside_the_source_gives_no_second_meaning(text: str, name: str) -> None:
    data = f"#pragma once\n{text}\n".encode()
    with pytest.raises(LiftError, match=re.escape(f"`{name}` has a meaning already")) as error:
        check_own_header(data, "shop.cuh", default_catalogue())
    assert error.value.where is not None and str(error.value.where) == "shop.cuh:2"


def test_a_header_beside_the_source_may_call_what_has_a_meaning() -> None:
    text = (
        "namespace shop { template <class S, class Q> __device__ void scores(S& s, const Q& q) {"
        " cubridge::gemm(s, q, transpose(q)); s = exp2(s); if (min(1, 2)) { sync(); } } }"
    )
    check_own_header(text.encode(), "shop.cuh", default_catalogue())


@pytest.mark.parametrize(
    "before",
    [
        "#include <cstdint>\n#include <cuda_fp16.h>",
        '#include "cubridge/sm80.cuh"',
        "__device__ int fine(int row, int step, int max) { return row; }",
        "constexpr int WIDE = min(3, 4);",
    ],
)
def test_what_means_nothing_else_is_taken(before: str) -> None:
    assert lift_body("sync();", before).opaque == ()
    assert text_of_body("sync();", before) == "sync()"


def test_every_function_of_the_headers_has_its_meaning() -> None:
    """All that the headers define at their top level, however it is read from them."""
    texts = [(include_dir() / header).read_text() for header in bundled_headers()]
    defined = set[str]().union(
        *(re.findall(r"^__device__[^\n]*?(\w+)\(", text, re.MULTILINE) for text in texts)
    )
    assert len(defined) > 80 and defined <= header_names()
    assert {"floor_div", "MmaAcc", "LOG2E", "blockIdx", "min", "cubridge"} <= meant(
        default_catalogue()
    )
