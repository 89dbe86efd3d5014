"""Kernels to lower, and the variants of a text that must not matter."""

from __future__ import annotations

from collections.abc import Callable

from engine.cuir.nodes import Module
from engine.cuir.parser import parse_module
from engine.cuir.printer import print_module
from engine.lift.cpp.provenance import Lifted
from engine.lift.files.lifter import lift_source
from engine.lower.lower import Lowered, lower
from engine.lower.spans import allowed_spans, verify_spans
from engine.resources import kernel_path
from tests.engine.lower.relift import verify_relift

# Written as nobody should: every construct of the kernel language in its odd forms.
ODD = b"""#include "cubridge/sm80.cuh"
using namespace cubridge;

struct Args {
  TensorArg q, k, o;  // \xe6\x9f\xa5\xe8\xaf\xa2
  int Nq, /* rows */ Nk;
  float scale;
};

/* counts tiles */ template <int BN>
__device__ int count(const Args& a, int q0) {
    return ceil_div(a.Nk, BN);  // all of them
}

__device__ float weight(float x) { return x * 2.0f; }

template <typename T, int D, int BM, int BN>
__global__ void __launch_bounds__(128)
odd(const __grid_constant__ Args a) {
  const auto Q = gmem<T>(a.q, a.Nq, D);  const auto K = gmem<T>(a.k, a.Nk, D);
  const auto O = gmem<T>(a.o, a.Nq, D);
  const auto sQ = shared<T, BM, D>(0);
  const auto sK = shared<T, BN, D>(BM*D*sizeof(T));
  const int q0 = blockIdx.x*BM;
  auto o = zeros<MmaAcc<BM, D, 4>>();

  // The loop.
  int seen = 0;
  if constexpr (D == 64) {
    copy_async(sQ, Q.tile(q0));
    commit_async();
  } else {
    copy_async(sQ,
               Q.tile(q0));  // split
    commit_async();  /* both
       of them */
  }
  for (int step = count<BN>(a, q0) - 1; step >= 0; --step) {
    const int n = step;
    if (n > 3) sync();
    else if (n == 2) { commit_async(); }
    else
      wait_async<1>();
    copy_async(sK, K.tile(n * BN));
    wait_async<0>(); sync();
    auto s = zeros<MmaAcc<BM, BN, 4>>();
    gemm(s, sQ, transpose(sK));
    s = keep(s, at(q0, n*BN),
             [&](int i, int j) { return (j < a.Nk); });
    s = map(s, [&](float x) { return weight(x) * a.scale; });
    {
      const int n = seen;
      seen += n + 1;
    }
    const auto p = to_operand<T>(s);
    gemm(o, p, sK);
    ++seen;
  }
  if (seen > 0) {
    // nothing kept
  }
  sync();
  store(sQ, o); sync();
  copy(O.tile(q0), sQ);
}

template <typename T, int D>
cudaError_t launch(const Args& args, cudaStream_t s) {
  const int bytes = (64 + 32) * D * sizeof(T);
  return run<odd<T, D, 64, 32>>(dim3(ceil_div(args.Nq, 64)), 128, bytes, s, args);
}
"""

ARCHS = {"flash_fwd_sm80": "sm_80", "flash_fwd_sm90": "sm_90a", "odd": "sm_80"}


def source(name: str) -> bytes:
    return ODD if name == "odd" else kernel_path(name).read_bytes()


def lifted(name: str, data: bytes | None = None, **values: str) -> Lifted:
    """The kernel lifted for bf16 and head size 128, or what `values` say."""
    text = source(name) if data is None else data
    return lift_source(text, {"T": "bf16", "D": "128", **values}, ARCHS[name])


def edit(module: Module, *changes: tuple[str, str]) -> Module:
    """The module with its CuIR text changed. Every `before` stands in it exactly once."""
    text = print_module(module)
    for before, after in changes:
        assert text.count(before) == 1, f"{text.count(before)} times: {before}"
        text = text.replace(before, after)
    return parse_module(text)


def checked(given: Lifted, target: Module) -> Lowered:
    """The lowered text, after G3's own checks of it."""
    allowed = allowed_spans(given, target)
    done = lower(given, target)
    offence = verify_spans(given.source, done.source, allowed)
    assert offence is None, f"{offence}\n{done.source.decode('utf-8', 'replace')}"
    mismatch = verify_relift(done.source, [target])
    assert mismatch is None, f"{mismatch}\n{done.source.decode('utf-8', 'replace')}"
    return done


def lowered(name: str, *changes: tuple[str, str]) -> str:
    """The text of the kernel after changes of its CuIR."""
    given = lifted(name)
    return checked(given, edit(given.module, *changes)).source.decode()


def crlf(data: bytes) -> bytes:
    return data.replace(b"\n", b"\r\n")


def tabs(data: bytes) -> bytes:
    """Two columns of indentation as one tab."""
    out = []
    for line in data.split(b"\n"):
        body = line.lstrip(b" ")
        width = len(line) - len(body)
        out.append(b"\t" * (width // 2) + b" " * (width % 2) + body)
    return b"\n".join(out)


def bom(data: bytes) -> bytes:
    return b"\xef\xbb\xbf" + data


def no_final_newline(data: bytes) -> bytes:
    return data.rstrip(b"\n")


def cjk(data: bytes) -> bytes:
    return data.replace(b"//", "// 注意力 ".encode())


VARIANTS: dict[str, Callable[[bytes], bytes]] = {
    f.__name__: f for f in (crlf, tabs, bom, no_final_newline, cjk)
}
