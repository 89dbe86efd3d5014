// Columns of a shared tile of 64 rows in a warpgroup's accumulator registers, and back: what a warpgroup
// changes of a tile that the TMA brought, before its matmuls read it there. The lanes that hold an
// accumulator's elements hold the same ones of operand a, so both ways are the accesses of that operand.
#pragma once

#include <cstdint>

#include "dense.cuh"
#include "sm90_async.cuh"
#include "sm90_tile.cuh"

namespace cubridge {

namespace detail {

// Where this lane's 16 bytes of the four 8 x 8 matrices lie whose first column is `column`: a multiple
// of 16. Each warp takes its own 16 rows.
template <typename T, int N>
__device__ __forceinline__ uint32_t matrices_at(SharedTile<T, 64, N> tile, int column) {
  const int thread = static_cast<int>(threadIdx.x);
  const int row = thread % 128 / 32 * 16 + thread % 16;
  const int unit = (column % 64 / 8 + thread % 32 / 16) ^ (row % 8);
  return tile.address + static_cast<uint32_t>(column / 64 * tile.PANEL_BYTES + row * 128 + unit * 16);
}

}  // namespace detail

// The elements of a shared tile's rows from `column` on, widened. `column` is a multiple of 64, and the
// layout's columns are in the tile. (PTX ISA: ldmatrix.sync.aligned.m8n8.x4.shared.b16)
template <typename Layout, typename T, int N>
__device__ __forceinline__ Tile<Layout> load_shared(SharedTile<T, 64, N> tile, int column) {
  static_assert(std::is_same_v<Layout, WgmmaAcc<64, Layout::WGMMA_COLS>> &&
                    Layout::WGMMA_COLS % 64 == 0 && Layout::WGMMA_COLS <= N,
                "load_shared takes an accumulator of whole panels of 64 of the tile's columns");
  Tile<Layout> result;
#pragma unroll
  for (int k = 0; k < Layout::WGMMA_COLS; k += 16) {
    unsigned pair[4];
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(pair[0]), "=r"(pair[1]), "=r"(pair[2]), "=r"(pair[3])
                 : "r"(detail::matrices_at(tile, column + k))
                 : "memory");
#pragma unroll
    for (int e = 0; e < 8; ++e) result.value[k / 2 + e] = detail::unpack<T>(pair[e / 2], e % 2);
  }
  return result;
}

// An accumulator, rounded to T, as the columns from `column` on of a shared tile's rows; `column` as
// above. (PTX ISA: stmatrix.sync.aligned.m8n8.x4.shared.b16)
template <typename T, int N, int COLS>
__device__ __forceinline__ void store_shared(SharedTile<T, 64, N> tile, int column,
                                             const Tile<WgmmaAcc<64, COLS>>& from) {
  static_assert(COLS % 64 == 0 && COLS <= N,
                "store_shared takes an accumulator of whole panels of 64 of the tile's columns");
#pragma unroll
  for (int k = 0; k < COLS; k += 16) {
    unsigned pair[4];
#pragma unroll
    for (int e = 0; e < 8; e += 2) {
      pair[e / 2] = pack<T>(from.value[k / 2 + e], from.value[k / 2 + e + 1]);
    }
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                     detail::matrices_at(tile, column + k)),
                 "r"(pair[0]), "r"(pair[1]), "r"(pair[2]), "r"(pair[3])
                 : "memory");
  }
}

}  // namespace cubridge
