// Tiles of f16 or bf16 in dynamic shared memory, with the 128-byte XOR swizzle: within each aligned
// 128 bytes of a row, the 16-byte chunk c lies at c ^ (row % 8). Eight rows of one logical chunk
// then lie in different banks, so ldmatrix, 16-byte copies and accumulator stores have no conflicts.
// It is the hardware's 128-byte swizzle mode (PTX ISA: "Swizzling modes") for tiles of 64 columns.
#pragma once

#include "args.cuh"
#include "work.cuh"

namespace cubridge {

// The dynamic shared memory of the block. A tile must start on 1024 bytes.
__device__ __forceinline__ unsigned shared_base() {
  extern __shared__ __align__(1024) unsigned char cubridge_shared[];
  return static_cast<unsigned>(__cvta_generic_to_shared(cubridge_shared));
}

// ROWS x COLS elements, row by row. `base` is an address of the shared state space.
template <typename T, int ROWS, int COLS>
struct Shared {
  static_assert(sizeof(T) == 2, "shared tiles hold f16 or bf16");
  static_assert(COLS % 64 == 0 && ROWS % 8 == 0, "whole swizzle atoms of 8 rows by 128 bytes");
  static constexpr int PITCH = COLS * 2;         // bytes of a row
  static constexpr int CHUNKS = PITCH / 16;      // 16-byte chunks of a row
  static constexpr int BYTES = ROWS * PITCH;

  unsigned base;

  // The address of 16-byte chunk `chunk` of `row`.
  __device__ __forceinline__ unsigned chunk(int row, int chunk) const {
    return base + row * PITCH + ((chunk ^ (row % 8)) << 4);
  }
};

// A tile read as its transpose, COLS x ROWS.
template <typename Tile>
struct Transposed {
  Tile tile;
};
template <typename T, int ROWS, int COLS>
__device__ __forceinline__ Transposed<Shared<T, ROWS, COLS>> transpose(Shared<T, ROWS, COLS> tile) {
  return {tile};
}

// STAGES tiles one after the other: the slots of a pipeline.
template <typename T, int STAGES, int ROWS, int COLS>
struct SharedStages {
  unsigned base;

  __device__ __forceinline__ Shared<T, ROWS, COLS> operator[](int stage) const {
    return {base + stage * Shared<T, ROWS, COLS>::BYTES};
  }
};

// A tile, or the stages of one, `offset` bytes into dynamic shared memory.
template <typename T, int ROWS, int COLS>
__device__ __forceinline__ Shared<T, ROWS, COLS> shared(int offset) {
  return {shared_base() + offset};
}
template <typename T, int STAGES, int ROWS, int COLS>
__device__ __forceinline__ SharedStages<T, STAGES, ROWS, COLS> shared_stages(int offset) {
  return {shared_base() + offset};
}

// COUNT words, `offset` bytes into dynamic shared memory.
template <int COUNT>
__device__ __forceinline__ SharedWords<COUNT> shared_words(int offset) {
  return {shared_base() + offset};
}

}  // namespace cubridge
