"""Ways of an input from the launcher to a place."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import TransferError
from engine.foreign.launcher import read_launcher
from engine.foreign.probe.places import Place
from engine.graft.edits import apply
from engine.graft.route import Router
from engine.spec.recipes.recipe import Input

SOURCE, HEADER = Path("/k/a.cu"), Path("/k/a.h")
SLOPES = Input("slopes", "extra", "f32", ("Hq",))
CALLS = b"""\
template <int N> __device__ void inner(float* s, int head) { s[0] *= 2; }
template <int N> __global__ void kernel(float* s) { inner<N>(s, blockIdx.x); }
void launch(float* s, int Hq, cudaStream_t stream) {
  auto run = &kernel<4>;
  run<<<Hq, 1, 0, stream>>>(s);
}
"""
STRUCT = b"""\
struct Params {
  float* s;
  int seqlen;  // keys
};
__global__ void kernel(const Params p) { p.s[0] *= 2; }
"""
SET = b"""\
#include "a.h"
void launch(float* s, int Hq, int N) {
  Params p{};
  p.seqlen = N;
  kernel<<<Hq, 1>>>(p);
}
"""
LISTED = b"""\
#include "a.h"
void launch(float* s, int Hq, int N) {
  kernel<<<Hq, 1>>>(Params{s, N});
}
"""


def routed(files: dict[Path, bytes], place: Place) -> tuple[str, dict[Path, str]]:
    router = Router(files, SOURCE, "launch")
    name = router.bring(SLOPES, place)
    assert router.bring(SLOPES, place) == name  # a second place asks for nothing more
    return name, {f: d.decode() for f, d in apply(files, router.edits).items()}


def test_through_parameters_of_all_that_call() -> None:
    place = Place(SOURCE, CALLS.index(b"s[0] *= 2;") + 10, 1, "inner", "s", 1, "s", {})
    name, made = routed({SOURCE: CALLS}, place)
    assert name == "slopes"
    text = made[SOURCE]
    assert "inner(float* s, int head, const float* slopes) {" in text
    assert "kernel(float* s, const float* slopes) { inner<N>(s, blockIdx.x, slopes); }" in text
    assert "void launch(float* s, int Hq, const float* slopes, cudaStream_t stream) {" in text
    assert "run<<<Hq, 1, 0, stream>>>(s, slopes);" in text


def test_instantiations_of_a_template_get_the_parameter() -> None:
    made = b"template __global__ void kernel<4>(float*);\ntemplate <> void other<4>(float*);\n"
    place = Place(SOURCE, CALLS.index(b"s[0] *= 2;") + 10, 1, "inner", "s", 1, "s", {})
    _, files = routed({SOURCE: CALLS, HEADER: made}, place)
    assert files[HEADER].splitlines() == [
        "template __global__ void kernel<4>(float*, const float* slopes);",
        "template <> void other<4>(float*);",
    ]


def test_whole_numbers_of_64_bits() -> None:
    router = Router({SOURCE: CALLS}, SOURCE, "launch")
    place = Place(SOURCE, CALLS.index(b"s[0] *= 2;") + 10, 1, "inner", "s", 1, "s", {})
    router.bring(Input("ids", "extra", "i64", ("Nk",)), place)
    text = apply(router.files, router.edits)[SOURCE].decode()
    assert "int head, const int64_t* ids) {" in text
    entry = read_launcher(text, "a.cu", "launch", {"s": "B", "ids": "Nk"}, "f32")
    assert [(p.means, p.dtype) for p in entry.tensors] == [("s", "f32"), ("ids", "i64")]


@pytest.mark.parametrize(
    ("source", "expected"),
    [(SET, "  p.seqlen = N;\n  p.slopes = slopes;\n"), (LISTED, "(Params{s, N, slopes});")],
)
def test_through_a_struct_that_probing_found_there(source: bytes, expected: str) -> None:
    files = {SOURCE: source, HEADER: STRUCT}
    at = STRUCT.index(b"p.s[0] *= 2;") + 12
    place = Place(HEADER, at, 5, "kernel", "s", 1, "s", {}, {"Nk": "p.seqlen"})
    name, made = routed(files, place)
    assert name == "p.slopes"
    assert "int seqlen;\n  const float* slopes;" in made[HEADER]
    assert expected in made[SOURCE]
    assert "void launch(float* s, int Hq, int N, const float* slopes) {" in made[SOURCE]


def test_of_structs_with_such_a_member_it_is_the_parameters_own() -> None:
    other = STRUCT.replace(b"Params", b"Other").replace(b"kernel", b"backward")
    forward = STRUCT.replace(b"struct Params", b"template <int D> struct Params")
    forward = forward.replace(b"const Params p", b"const Params<64> p")
    header = other + forward + other.replace(b"Other", b"Third").replace(b"backward", b"last")
    at = header.index(b"s[0] *= 2;", len(other)) + 10
    place = Place(HEADER, at, 5, "kernel", "p.s[0]", 1, "p.s[0]", {}, {"Nk": "p.seqlen"})
    source = LISTED.replace(b"Params", b"Params<64>")
    name, made = routed({SOURCE: source, HEADER: header}, place)
    assert name == "p.slopes" and "Params<64>{s, N, slopes}" in made[SOURCE]
    first, own, last = made[HEADER].split("struct ")[1:]
    assert "slopes" in own and "slopes" not in first + last


def test_a_way_that_ends_says_where() -> None:
    source = CALLS.replace(b"run<<<", b"other<<<")
    place = Place(SOURCE, source.index(b"s[0] *= 2;") + 10, 1, "inner", "s", 1, "s", {})
    with pytest.raises(TransferError, match=r"a\.cu: no call of kernel is seen, so slopes has no"):
        routed({SOURCE: source}, place)


ORDERED = b"""\
void run(at::Tensor q, int n, cudaStream_t stream = 0);
__global__ void kernel(float* s) { int slopes = 2; s[0] *= slopes; }
void run(at::Tensor q, int n, cudaStream_t stream) {
  kernel<<<n, 1, 0, stream>>>(q.data_ptr<float>());
}
void launch(at::Tensor q, cudaStream_t s) {
  run(q, 4, s);
  run(q, 5);
}
"""


def test_an_argument_stands_where_the_parameter_does_under_a_name_of_its_own() -> None:
    place = Place(SOURCE, ORDERED.index(b"s[0] *= slopes;") + 15, 2, "kernel", "s", 1, "s", {})
    name, made = routed({SOURCE: ORDERED}, place)
    assert name == "slopes_"
    assert made[SOURCE].splitlines() == [
        "void run(at::Tensor q, int n, const float* slopes, cudaStream_t stream = 0);",
        "__global__ void kernel(float* s, const float* slopes_) "
        "{ int slopes = 2; s[0] *= slopes; }",
        "void run(at::Tensor q, int n, const float* slopes, cudaStream_t stream) {",
        "  kernel<<<n, 1, 0, stream>>>(q.data_ptr<float>(), slopes);",
        "}",
        "void launch(at::Tensor q, at::Tensor slopes, cudaStream_t s) {",
        "  run(q, 4, slopes.data_ptr<float>(), s);",
        "  run(q, 5, slopes.data_ptr<float>());",
        "}",
    ]


def test_a_launcher_that_has_the_name_already_is_refused() -> None:
    source = CALLS.replace(b"int Hq", b"int slopes")
    place = Place(SOURCE, source.index(b"s[0] *= 2;") + 10, 1, "inner", "s", 1, "s", {})
    with pytest.raises(TransferError, match="launch has something called slopes already"):
        routed({SOURCE: source}, place)


NESTED = b"""\
#pragma once
struct Call { float* s; int heads; };
template <int N> struct Loop {
  struct Arguments { float* s; int heads; };
  struct Params { float* s; int heads = 1; };
  static Params lowered(Arguments const& args) {
    int count[] = {1, 2};
    return {args.s, args.heads};
  }
  __device__ void step(Params const& params, int head) { params.s[head] *= 2; }
};
template <int N> struct Other {
  struct Params { float* s; int heads; int more; };
  static Params lowered(Call const& call) { return {call.s, call.heads, 0}; }
};
template <int N> struct Kernel {
  struct Params { typename Loop<N>::Params loop; };
  __device__ void operator()(Params const& params) { Loop<N>().step(params.loop, blockIdx.x); }
};
template <class K> __global__ void run(typename K::Params const params) { K()(params); }
template <int N> struct Start {
  void operator()(Call& call, cudaStream_t stream) {
    typename Loop<N>::Arguments args {call.s, call.heads};
    run<Kernel<N>><<<call.heads, 1, 0, stream>>>({Loop<N>::lowered(args)});
  }
};
"""
CALLED = b"""\
#include "a.h"
void launch(float* s, int Hq, cudaStream_t stream) {
  Call call{};
  call.s = s;
  call.heads = Hq;
  Start<4>()(call, stream);
}
"""


def test_through_structs_that_are_made_of_structs() -> None:
    """A function that only an object's `operator()` calls gets no parameter: that has no name."""
    at = NESTED.index(b"params.s[head] *= 2;") + 20
    place = Place(HEADER, at, 1, "step", "params.s", 1, "params.s[head]", {})
    name, made = routed({SOURCE: CALLED, HEADER: NESTED}, place)
    assert name == "params.slopes"
    assert "float* s, int Hq, const float* slopes, cudaStream_t" in made[SOURCE]
    assert "call.s = s;\n  call.slopes = slopes;\n" in made[SOURCE]
    text = made[HEADER]
    for part in (
        "struct Call { float* s; int heads;\nconst float* slopes; };",
        "struct Arguments { float* s; int heads;\nconst float* slopes; };",
        "struct Params { float* s; int heads = 1;\nconst float* slopes; };",
        "return {args.s, args.heads, args.slopes};",
        "Arguments args {call.s, call.heads, call.slopes};",
        "int count[] = {1, 2};",
        "struct Params { float* s; int heads; int more; };",
        "return {call.s, call.heads, 0};",
        "operator()(Params const& params) {",
    ):
        assert part in text, part


def test_a_struct_that_nothing_makes_is_no_way() -> None:
    files = {SOURCE: CALLED, HEADER: NESTED.replace(b"return {args.s, args.heads}", b"return {}")}
    at = files[HEADER].index(b"params.s[head] *= 2;") + 20
    place = Place(HEADER, at, 1, "step", "params.s", 1, "params.s[head]", {})
    with pytest.raises(TransferError, match="no call of step is seen"):
        routed(files, place)
