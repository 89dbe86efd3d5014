// wmma: fragments have no layout of their own, so a load, a product and a store are one case.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

#include <cstdint>

namespace wmma = nvcuda::wmma;

template <typename T, typename LayoutA, typename LayoutB>
__device__ __forceinline__ void multiply(const uint32_t* source, uint32_t* target) {
  wmma::fragment<wmma::matrix_a, 16, 16, 16, T, LayoutA> a;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, T, LayoutB> b;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> d;
  const T* from = reinterpret_cast<const T*>(source) + threadIdx.x / 32 * 1024;
  float* to = reinterpret_cast<float*>(target) + threadIdx.x / 32 * 512;
  wmma::load_matrix_sync(a, from, 24);
  wmma::load_matrix_sync(b, from + 512, 16);
  wmma::fill_fragment(d, 1.f);
  wmma::mma_sync(d, a, b, d);
  wmma::store_matrix_sync(to, d, 16, wmma::mem_row_major);
  wmma::store_matrix_sync(to + 256, d, 16, wmma::mem_col_major);
}
using Row = wmma::row_major;
using Column = wmma::col_major;
#define CASE(name, type, a, b)                                                        \
  extern "C" __global__ void name(const uint32_t* source, uint32_t* target) {         \
    multiply<type, a, b>(source, target);                                             \
  }
CASE(wmma_bf16_row_col, __nv_bfloat16, Row, Column)
CASE(wmma_bf16_row_row, __nv_bfloat16, Row, Row)
CASE(wmma_bf16_col_row, __nv_bfloat16, Column, Row)
CASE(wmma_f16_row_col, __half, Row, Column)
CASE(wmma_f16_col_row, __half, Column, Row)
