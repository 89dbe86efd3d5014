"""The kernels that the lifter's tests read, and a small frame for single statements."""

from __future__ import annotations

from pathlib import Path

from engine.cuir.nodes import Function
from engine.cuir.printer import print_function
from engine.lift import Lifted, lift_source
from engine.resources import kernels_dir

DATA = Path(__file__).parent / "data"
CONTRACT = (DATA / "flash.cu").read_bytes()
BINDING = {"T": "bf16", "D": "128"}

_FRAME = """
#include "cubridge/sm80.cuh"
using namespace cubridge;
struct Args {{ TensorArg q, k; int B, Hq, Nq; long long n; float scale; }};
template <typename T> __device__ int helper(const Args& args, int i) {{ return i; }}
{before}
template <typename T, int D>
__global__ void __launch_bounds__(128) kernel(const __grid_constant__ Args args) {{
  const auto Q = gmem<T>(args.q, args.B, args.Hq, args.Nq, D);
  const auto slope = gmem<float>(args.k, args.Hq);
  const auto sK = shared_stages<T, 2, 64, D>(0);
  const auto bars = mbarriers<2>(65536);
  int i = 0;
  int j = 1;
  float x = 0.0f;
  bool ok = true;
  auto s = zeros<MmaAcc<64, 64, 4>>();
  auto m = zeros<RowOf<MmaAcc<64, 64, 4>>>();
  const auto ids_of = gmem<int>(args.q, args.Nq);
  const auto ids = load_cols<MmaAcc<64, 64, 4>>(ids_of.tile(i));
{body}
}}
template <typename T, int D>
cudaError_t launch(const Args& args, cudaStream_t stream) {{
  return run<kernel<T, D>>(dim3(1), 128, 0, stream, args);
}}
"""
PRELUDE = 12


def kernel_bytes(name: str) -> bytes:
    return (kernels_dir() / name / "kernel.cu").read_bytes()


def frame(body: str, before: str = "") -> bytes:
    return _FRAME.format(body=body, before=before).encode()


def lift_body(body: str, before: str = "", arch: str = "sm_80") -> Lifted:
    return lift_source(frame(body, before), BINDING, arch)


def text_of_body(body: str, before: str = "") -> str:
    """The CuIR of `body` alone, without the frame's statements and indentation."""
    kernel: Function = lift_body(body, before).module.function("kernel")
    lines = print_function(kernel).splitlines()[2 + PRELUDE :]
    return "\n".join(line[4:] for line in lines)
