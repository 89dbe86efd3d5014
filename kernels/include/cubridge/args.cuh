// What a kernel is given and how it is launched: element types, the C ABI's tensor argument, the
// shared memory of each architecture, and the launch itself. No torch headers.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>

#ifndef CUBRIDGE_ARCH
#error "compile with -DCUBRIDGE_ARCH=<compute capability times 100>, such as 800 for sm_80"
#endif

namespace cubridge {

using f16 = __half;
using bf16 = __nv_bfloat16;

// A tensor of the C ABI: strides count elements, outermost dimension first. A view of rank R uses
// the first R of them.
struct TensorArg {
  void* data;
  long long stride[4];
};

// Shared memory that one block may opt in to, in bytes (CUDA C++ Programming Guide, "Compute
// Capabilities": maximum shared memory per thread block). A constant, so that a launcher can choose
// tiles and stages at compile time.
constexpr int shared_limit() {
  switch (CUBRIDGE_ARCH) {
    case 800: case 870: return 163 * 1024;
    case 860: case 890: case 1200: case 1210: return 99 * 1024;
    case 900: case 1000: case 1030: return 227 * 1024;
    default: return 48 * 1024;
  }
}

template <typename I>
__host__ __device__ constexpr I ceil_div(I a, I b) {
  return (a + b - 1) / b;
}

// Launches Kernel with `bytes` of dynamic shared memory (opting in past 48 KB) and reports an error
// of the launch itself; errors of the running kernel surface at the next synchronisation.
template <auto Kernel, typename... Params>
cudaError_t run(dim3 grid, int threads, int bytes, cudaStream_t stream, const Params&... params) {
  if (bytes > 48 * 1024) {
    const cudaError_t status =
        cudaFuncSetAttribute(Kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (status != cudaSuccess) return status;
  }
  Kernel<<<grid, threads, bytes, stream>>>(params...);
  return cudaGetLastError();
}

}  // namespace cubridge
