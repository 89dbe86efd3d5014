"""A kernel that compiles in a second, in the shape of the real ones."""

from __future__ import annotations

from pathlib import Path

import pytest

SCALE = """\
#include "cubridge/small.cuh"
using namespace cubridge;

struct Args {
  TensorArg x;
  int n;
  float scale;
};

template <typename T, int N>
__global__ void __launch_bounds__(64) scale_rows(const __grid_constant__ Args args) {
  T* x = static_cast<T*>(args.x.data);
  const int i = blockIdx.x * N + threadIdx.x;
  if (i < args.n) {
    x[i] = twice(static_cast<float>(x[i])) * args.scale;
  }
}

template <typename T, int N>
cudaError_t launch(const Args& args, cudaStream_t stream) {
  if (args.n == 0) {
    return cudaSuccess;
  }
  scale_rows<T, N><<<(args.n + N - 1) / N, 64, 0, stream>>>(args);
  return cudaGetLastError();
}
"""

HEADER = """\
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
namespace cubridge {
using f16 = __half;
using bf16 = __nv_bfloat16;
struct TensorArg { void* data; long long stride[4]; };
template <typename X>
__device__ X twice(X x) {
  return x + x;
}
}  // namespace cubridge
"""

FIELDS = (("x", "tensor"), ("n", "i32"), ("scale", "f32"))


@pytest.fixture
def include(tmp_path: Path) -> Path:
    folder = tmp_path / "headers"
    (folder / "cubridge").mkdir(parents=True)
    (folder / "cubridge" / "small.cuh").write_text(HEADER)
    return folder


@pytest.fixture
def scale_source() -> str:
    return SCALE
