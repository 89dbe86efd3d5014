// Attention of one head with WMMA: scores go through shared memory and are read back twice.
// A block has 32 rows and two warps; D is 32; at most 64 keys, in whole tiles of 16 filled with zeros.
#include <cuda_bf16.h>
#include <mma.h>

#include <cstdint>

namespace wmma = nvcuda::wmma;
constexpr int kD = 32, kRows = 32, kMost = 64;

extern "C" __global__ void __launch_bounds__(64)
wmma_attention(const __nv_bfloat16* q, const __nv_bfloat16* k, const __nv_bfloat16* v, float* o,
               int rows, int keys, float scale) {
  __shared__ __align__(32) __nv_bfloat16 sq[kRows * kD], sk[kMost * kD], sv[kMost * kD];
  __shared__ __align__(32) float scores[kRows * kMost];
  __shared__ __align__(32) __nv_bfloat16 p[kRows * kMost];
  __shared__ __align__(32) float result[kRows * kD];
  __shared__ float sums[kRows];
  const int t = threadIdx.x, warp = t / 32, first = blockIdx.x * kRows;
  const int tiles = (keys + 15) / 16;
  for (int i = t; i < kRows * kD; i += 64)
    sq[i] = first + i / kD < rows ? q[first * kD + i] : __float2bfloat16(0.f);
  for (int i = t; i < tiles * 16 * kD; i += 64) {
    sk[i] = i / kD < keys ? k[i] : __float2bfloat16(0.f);
    sv[i] = i / kD < keys ? v[i] : __float2bfloat16(0.f);
  }
  __syncthreads();
  wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> a;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::col_major> b;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::row_major> c;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> d;
  for (int n = 0; n < tiles; n++) {
    wmma::fill_fragment(d, 0.f);
    for (int x = 0; x < kD; x += 16) {
      wmma::load_matrix_sync(a, sq + warp * 16 * kD + x, kD);
      wmma::load_matrix_sync(b, sk + n * 16 * kD + x, kD);
      wmma::mma_sync(d, a, b, d);
    }
    wmma::store_matrix_sync(scores + warp * 16 * kMost + n * 16, d, kMost, wmma::mem_row_major);
  }
  __syncthreads();
  if (t < kRows) {
    float most = -INFINITY, sum = 0;
    for (int j = 0; j < keys; j++) most = fmaxf(most, scores[t * kMost + j]);
    for (int j = 0; j < tiles * 16; j++) {
      float e = j < keys ? exp2f((scores[t * kMost + j] - most) * scale) : 0.f;
      sum += e;
      p[t * kMost + j] = __float2bfloat16(e);
    }
    sums[t] = sum;
  }
  __syncthreads();
  for (int n = 0; n < kD; n += 16) {
    wmma::fill_fragment(d, 0.f);
    for (int x = 0; x < tiles; x++) {
      wmma::load_matrix_sync(a, p + warp * 16 * kMost + x * 16, kMost);
      wmma::load_matrix_sync(c, sv + x * 16 * kD + n, kD);
      wmma::mma_sync(d, a, c, d);
    }
    wmma::store_matrix_sync(result + warp * 16 * kD + n, d, kD, wmma::mem_row_major);
  }
  __syncwarp();  // each warp writes out its own rows
  for (int i = warp * 16 * kD + t % 32; i < (warp + 1) * 16 * kD; i += 32)
    if (first + i / kD < rows) o[first * kD + i] = result[i] / sums[i / kD];
}
