// Hopper's asynchronous machinery, one operation each: who runs (warpgroup_id, elect), register
// reallocation, mbarriers, named barriers, the tensor memory accelerator (TMA).
//
// Shared memory is addressed here by its 32-bit window address (`SharedTile::address`), which is what
// the instructions take.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>
#include <cstdint>

#include "args.cuh"
#include "work.cuh"

namespace cubridge {

// ---- who runs -------------------------------------------------------------------------------

// The warpgroup (4 warps) of this thread. The shuffle tells the compiler that a warp never diverges
// on it, so that roles become uniform branches.
__device__ __forceinline__ int warpgroup_id() {
  return __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0);
}

// True in one thread of each warpgroup (its first).
__device__ __forceinline__ bool elect() { return threadIdx.x % 128 == 0; }

// Registers per thread of this warpgroup from here on; the kernel needs a register cap at entry
// (__launch_bounds__(threads, 1)), and every warp of the warpgroup executes it.
template <int REGISTERS>
__device__ __forceinline__ void raise_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

template <int REGISTERS>
__device__ __forceinline__ void lower_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

// ---- shared memory --------------------------------------------------------------------------

// Start of the block's dynamic shared memory, rounded up to the 1024 bytes that a 128-byte swizzled
// tile needs (launch asks for 1024 bytes more than the tiles take).
__device__ __forceinline__ uint32_t shared_base() {
  extern __shared__ unsigned char cubridge_shared[];
  const uint32_t start = static_cast<uint32_t>(__cvta_generic_to_shared(cubridge_shared));
  return (start + 1023u) & ~1023u;
}

// ROWS x COLS elements as the TMA writes them with its 128-byte swizzle: panels of 64 two-byte
// columns, each panel ROWS rows of 128 bytes whose 16-byte units are permuted by (row mod 8). They
// may be the first of a tile of PITCH columns: panels stand one after another, so where a row's
// columns are does not hang on how many follow.
template <typename T, int ROWS_, int COLS_, int PITCH_ = COLS_>
struct SharedTile {
  using Element = T;
  static constexpr int ROWS = ROWS_;
  static constexpr int COLS = COLS_;
  static constexpr int PITCH = PITCH_;
  static constexpr int PANEL_COLS = 128 / static_cast<int>(sizeof(T));
  static constexpr int PANELS = PITCH / PANEL_COLS;
  static constexpr int PANEL_BYTES = ROWS * 128;
  static constexpr int BYTES = ROWS * PITCH * static_cast<int>(sizeof(T));
  static_assert(PITCH % PANEL_COLS == 0, "a swizzled tile is a multiple of 128 bytes wide");
  static_assert(0 < COLS && COLS <= PITCH, "the first columns of a tile are some of its columns");
  static_assert(ROWS % 8 == 0, "the swizzle repeats every 8 rows");
  uint32_t address;
};

template <typename T, int STAGES, int ROWS, int COLS>
struct SharedStages {
  uint32_t address;
  __device__ __forceinline__ SharedTile<T, ROWS, COLS> operator[](int stage) const {
    return {address + static_cast<uint32_t>(stage) * SharedTile<T, ROWS, COLS>::BYTES};
  }
};

template <typename T, int ROWS, int COLS>
__device__ __forceinline__ SharedTile<T, ROWS, COLS> shared(int offset) {
  return {shared_base() + static_cast<uint32_t>(offset)};
}

template <typename T, int STAGES, int ROWS, int COLS>
__device__ __forceinline__ SharedStages<T, STAGES, ROWS, COLS> shared_stages(int offset) {
  return {shared_base() + static_cast<uint32_t>(offset)};
}

template <int COUNT>
__device__ __forceinline__ SharedWords<COUNT> shared_words(int offset) {
  return {shared_base() + static_cast<uint32_t>(offset)};
}

// The first C columns of a shared tile, as the matrix multiply takes them: 16 at a time.
template <int C, typename T, int ROWS, int COLS>
__device__ __forceinline__ SharedTile<T, ROWS, C, COLS> columns(SharedTile<T, ROWS, COLS> tile) {
  static_assert(C % 16 == 0, "columns are taken 16 at a time");
  return {tile.address};
}

// The transposed view of a shared tile: the same bytes, read as COLS x ROWS.
template <typename Tile>
struct Transposed {
  Tile tile;
};

template <typename T, int ROWS, int COLS, int PITCH>
__device__ __forceinline__ Transposed<SharedTile<T, ROWS, COLS, PITCH>> transpose(
    SharedTile<T, ROWS, COLS, PITCH> tile) {
  return {tile};
}

// All threads of the block.
__device__ __forceinline__ void sync() { __syncthreads(); }

// ---- mbarriers ------------------------------------------------------------------------------

struct Barrier {
  uint32_t address;
};

template <int COUNT>
struct Barriers {
  uint32_t address;
  __device__ __forceinline__ Barrier operator[](int index) const {
    return {address + static_cast<uint32_t>(index) * 8u};
  }
};

template <int COUNT>
__device__ __forceinline__ Barriers<COUNT> mbarriers(int offset) {
  return {shared_base() + static_cast<uint32_t>(offset)};
}

// A phase of `barrier` ends after `count` arrivals and once all expected bytes have landed.
__device__ __forceinline__ void mbarrier_init(Barrier barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier.address), "r"(count)
               : "memory");
}

// Makes initialised barriers visible to the asynchronous proxy; a sync() follows.
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void arrive(Barrier barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier.address) : "memory");
}

// One arrival that also adds `bytes` to what the phase waits for.
__device__ __forceinline__ void arrive_expect(Barrier barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier.address),
               "r"(bytes)
               : "memory");
}

// Returns once the phase of that parity has ended: parity 0 is the first phase, and waiting for
// parity 1 on a fresh barrier returns at once.
__device__ __forceinline__ void wait(Barrier barrier, int parity) {
  asm volatile(
      "{\n"
      ".reg .pred landed;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 landed, [%0], %1;\n"
      "@landed bra.uni done;\n"
      "bra.uni again;\n"
      "done:\n"
      "}" ::"r"(barrier.address),
      "r"(parity)
      : "memory");
}

// ---- named barriers -------------------------------------------------------------------------

// Waits until `threads` threads have come to barrier `id` (1 to 15; 0 is sync()'s), arriving itself.
__device__ __forceinline__ void named_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Arrives at barrier `id` without waiting.
__device__ __forceinline__ void named_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---- TMA ------------------------------------------------------------------------------------

// A tensor map and, on the host, whether it could be made (see sm90_host.cuh). Passed to the kernel
// by value as a __grid_constant__ parameter.
struct TensorMap {
  CUtensorMap map;
  int status;
};

// What tma_load_rows takes: a map whose boxes end or begin at any row (see sm90_host.cuh), and maps for
// boxes of eight rows and of one.
struct RowMap {
  CUtensorMap sliding;
  CUtensorMap eights;
  CUtensorMap ones;
  int status;
};

__device__ __forceinline__ void prefetch_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(reinterpret_cast<uint64_t>(&map.map)) : "memory");
}

namespace detail {

// The map's box at a column, a row, a head and a batch to a tile's rows from `row` on, panel by panel.
// The swizzle goes by the address in shared memory, so rows lie as in a box of the whole tile.
template <typename Tile>
__device__ __forceinline__ void tma_box(Tile tile, int row, const CUtensorMap& map, int column, int key,
                                        int head, int batch, Barrier barrier) {
#pragma unroll
  for (int panel = 0; panel < Tile::PANELS; ++panel) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(tile.address + panel * Tile::PANEL_BYTES +
                                                     row * 128),
        "l"(reinterpret_cast<uint64_t>(&map)), "r"(barrier.address),
        "r"(column + panel * Tile::PANEL_COLS), "r"(key), "r"(head), "r"(batch)
        : "memory");
  }
}

// A box of a sliding map: from row `from + place` on, of which the ROWS rows from row `from` on are
// inside; those outside become zero.
template <typename Tile>
__device__ __forceinline__ void tma_box_sliding(Tile tile, const CUtensorMap& map, int column,
                                                int place, int from, int head, int batch,
                                                Barrier barrier) {
#pragma unroll
  for (int panel = 0; panel < Tile::PANELS; ++panel) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(tile.address + panel * Tile::PANEL_BYTES),
        "l"(reinterpret_cast<uint64_t>(&map)), "r"(barrier.address),
        "r"(column + panel * Tile::PANEL_COLS), "r"(place), "r"(from), "r"(head), "r"(batch)
        : "memory");
  }
}

}  // namespace detail

// The box at `coordinate` (innermost first: column, row, head, batch) into a swizzled shared tile,
// panel by panel; elements outside the tensor become zero. Completes on `barrier`, by bytes.
template <typename T, int ROWS, int COLS>
__device__ __forceinline__ void tma_load(SharedTile<T, ROWS, COLS> tile, const TensorMap& map,
                                         const int (&coordinate)[4], Barrier barrier) {
  detail::tma_box(tile, 0, map.map, coordinate[0], coordinate[1], coordinate[2], coordinate[3],
                  barrier);
}

// tma_load of the rows in [begin, end), and zeros in the tile's other rows; `begin` is at least 0 and
// `end` at most the tensor's number of rows. As many copies as tma_load makes, but for a range that
// ends inside the tile and begins there too or ends within the tensor's first ROWS rows: no ROWS rows
// of the tensor have its rows of the tile alone, which are moved eight at a time where all or none are
// inside, else one. What is outside comes from before the tensor's first row.
template <typename T, int ROWS, int COLS>
__device__ __forceinline__ void tma_load_rows(SharedTile<T, ROWS, COLS> tile, const RowMap& map,
                                              const int (&coordinate)[4], Barrier barrier, int begin,
                                              int end) {
  const int corner = coordinate[1];
  const int past = corner + ROWS;
  const int from = corner < begin ? begin : min(end, past) - ROWS;
  if (from >= 0 && (corner >= begin || end >= past)) {
    detail::tma_box_sliding(tile, map.sliding, coordinate[0], corner - from, from, coordinate[2],
                            coordinate[3], barrier);
    return;
  }
  constexpr int BEFORE = -8;
  int row = 0;
#pragma unroll 1
  while (row < ROWS) {
    const int first = corner + row;
    const int last = first + 7;
    const bool inside = first >= begin && first < end;
    const bool alike = inside ? last < end : last < begin || first >= end;
    const bool eight = row % 8 == 0 && alike;
    detail::tma_box(tile, row, eight ? map.eights : map.ones, coordinate[0], inside ? first : BEFORE,
                    coordinate[2], coordinate[3], barrier);
    row += eight ? 8 : 1;
  }
}

// A swizzled shared tile to the box at `coordinate`; elements past the tensor are dropped. No
// coordinate may be negative (the device answers with an illegal instruction).
template <typename T, int ROWS, int COLS>
__device__ __forceinline__ void tma_store(const TensorMap& map, const int (&coordinate)[4],
                                          SharedTile<T, ROWS, COLS> tile) {
  using Tile = SharedTile<T, ROWS, COLS>;
#pragma unroll
  for (int panel = 0; panel < Tile::PANELS; ++panel) {
    asm volatile(
        "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group"
        " [%0, {%2, %3, %4, %5}], [%1];" ::"l"(reinterpret_cast<uint64_t>(&map.map)),
        "r"(tile.address + panel * Tile::PANEL_BYTES),
        "r"(coordinate[0] + panel * Tile::PANEL_COLS), "r"(coordinate[1]), "r"(coordinate[2]),
        "r"(coordinate[3])
        : "memory");
  }
}

__device__ __forceinline__ void tma_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// At most PENDING of this thread's newest store groups still read shared memory.
template <int PENDING>
__device__ __forceinline__ void tma_wait() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}

// Orders this thread's ordinary shared-memory writes before later reads by the TMA or the tensor
// cores (the asynchronous proxy); a barrier among the writers follows.
__device__ __forceinline__ void fence_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace cubridge
