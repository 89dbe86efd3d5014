"""Which numbers of structs may be spelled in a function."""

from __future__ import annotations

from pathlib import Path

from engine.foreign.probe.boundaries import boundaries


def test_numbers_that_structs_in_scope_have() -> None:
    """Which the function need not spell; of structs of one name the one of its own class."""
    source = b"""\
struct Sizes { int rows; float *data; static constexpr int kTile = 8; };
class Loop {
  struct Params { Sizes sizes; float const scale; int n, m; };
  __device__ int f(Params const& params, Sizes* sizes) { int a = 1; return a; }
};
class Other { struct Params { int other; }; };
template <class Params> __device__ int g(Params const& params) { int a = 1; return a; }
"""
    scopes = {b.line: b.scope for b in boundaries(Path("x.cu"), source, {"f", "g"})}
    assert scopes == {
        4: ("params", "a", "params.scale", "params.n", "params.m", "sizes->rows"),
        7: ("params", "a"),
    }
