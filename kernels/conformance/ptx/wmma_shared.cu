// Accumulators of wmma through shared memory: each warp stores one there by rows and by columns, and
// writes out what lies there.
#include <mma.h>

#include <cstdint>

using namespace nvcuda;

extern "C" __global__ void wmma_shared(const uint32_t* source, uint32_t* target) {
  __shared__ float held[4][512];
  const int warp = threadIdx.x / 32;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> d;
  wmma::load_matrix_sync(d, reinterpret_cast<const float*>(source) + warp * 256, 16,
                         wmma::mem_row_major);
  wmma::store_matrix_sync(held[warp], d, 16, wmma::mem_row_major);
  wmma::store_matrix_sync(held[warp] + 256, d, 16, wmma::mem_col_major);
  __syncwarp();
  for (int i = threadIdx.x % 32; i < 512; i += 32)
    target[warp * 512 + i] = __float_as_uint(held[warp][i]);
}
