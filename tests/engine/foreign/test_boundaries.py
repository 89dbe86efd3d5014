"""The places between statements, and what is in scope there."""

from __future__ import annotations

from pathlib import Path

from engine.foreign.functions import names_in
from engine.foreign.probe.boundaries import boundaries

SOURCE = b"""\
constexpr int kTile = 32;
template <class T> __device__ void scale(T& tile, const Params& p) {
  for (int e = 0; e < 4; e++) { tile[e] *= p.scale; }
}
__global__ void kernel(const float* q, int n, Params params) {
  __shared__ float s[64];
  const int lane = threadIdx.x % 32;
  float acc[kTile][2] = {};
  for (int j = lane; j < n; j += 32) {
    float x = q[j];
    s[j] = x * params.scale;
    if (x > 0) acc[0][1] = x;
  }
  auto f = [&](int a) { float y = a; return y; };
  return;
}
void host(int n) { kernel<<<1, 32>>>(0, n, {}); int done = 0; }
"""


def found() -> dict[int, tuple[list[str], list[str]]]:
    every = boundaries(Path("x.cu"), SOURCE, {"scale", "kernel", "host"})
    return {b.line: ([v.name for v in b.mentioned], list(b.scope)) for b in every}


def test_what_a_statement_mentions() -> None:
    mentioned = {line: names for line, (names, _) in found().items()}
    assert mentioned == {
        3: ["tile", "p"], 6: [], 7: [], 8: ["acc"], 10: ["x"], 11: ["x", "s[j]"], 12: ["x", "acc"],
        13: ["acc"], 14: ["f"],
    }  # fmt: skip


def test_scope_has_names_members_and_arithmetic() -> None:
    scope = found()[11][1]
    assert {"n", "lane", "j", "x", "params.scale", "threadIdx.x % 32", "kTile"} <= set(scope)
    assert "y" not in scope
    assert "q" not in scope
    assert "j" not in found()[8][1]


def test_loops_around_a_place() -> None:
    loop = next(b for b in boundaries(Path("x.cu"), SOURCE, {"kernel"}) if b.line == 11).loops[0]
    assert (loop.counter, loop.operator, loop.right_text) == ("j", "<", "n")
    assert loop.first is not None and loop.right is not None
    assert SOURCE[slice(*loop.first)] == b"lane"
    assert SOURCE[slice(*loop.right)] == b"n"


def test_extents_of_arrays() -> None:
    at = next(b for b in boundaries(Path("x.cu"), SOURCE, {"kernel"}) if b.line == 8)
    assert at.mentioned[0].extents == ("kTile", "2")


def test_names_that_functions_spell() -> None:
    names = dict(names_in(SOURCE))
    assert "kernel" in names["host"]
    assert "kTile" in names[""]
    assert "lane" not in names[""]


def test_where_functions_and_lambdas_are_said_to_stay_inline() -> None:
    source = b"""\
__device__ int f(int n) {
  auto twice = [&](auto& x, int a) { x += a; };
  auto next = [&] { n++; };
  auto last = [&](int a) mutable noexcept -> int { int b = a; return b; };
  return last(n);
}
__global__ void kernel(int* o) { o[0] = f(1); }
"""
    inside = {}
    for b in boundaries(Path("x.cu"), source, {"f", "kernel"}):
        inside.setdefault(b.line, [source[at : at + 8] for at in b.inline])
    own = b"__device"
    assert inside == {2: [own, b"{ x += a"], 3: [own, b"{ n++; }"], 4: [own, b"-> int {"], 7: []}
