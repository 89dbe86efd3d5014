// Tile operations of the architectures from sm_80 on that have mma.sync: cp.async copies into
// swizzled shared memory, ldmatrix, mma.sync.m16n8k16, and the way back. Each function is one
// operation on one tile; none holds a loop over keys, a second matmul, a reduction or a barrier.
#pragma once

#include "args.cuh"
#include "gmem.cuh"
#include "lines.cuh"
#include "lists.cuh"
#include "scalar.cuh"
#include "shared.cuh"
#include "tile.cuh"
#include "work.cuh"

// sm_75 has neither cp.async nor mma.sync.m16n8k16 nor bf16 operands (PTX ISA: "Target ISA Notes"
// of each), so there is nothing here that it could run.
static_assert(CUBRIDGE_ARCH >= 800, "sm80.cuh needs sm_80 or newer: cp.async and mma.sync.m16n8k16");

namespace cubridge {

// --- layouts ----------------------------------------------------------------------------------

// The accumulator of an M x N tile over WARPS warps: warp w has the rows w * M / WARPS and on, as
// 16 x 8 fragments, row blocks outermost. In a fragment, lane t has the elements (t / 4, 2 (t % 4))
// and the one right of it, then the same two eight rows further down.
// (PTX ISA: "Matrix fragments for mma.m16n8k16 with floating point type", C and D)
template <int M, int WARPS>
struct MmaRows {
  static constexpr Axis AXIS = Axis::ROW;
  static constexpr int SIZE = M / (8 * WARPS);

  __device__ static __forceinline__ int index(int slot) {
    return threadIdx.x / 32 * (M / WARPS) + slot * 8 + threadIdx.x % 32 / 4;
  }
};
template <int N>
struct MmaCols {
  static constexpr Axis AXIS = Axis::COL;
  static constexpr int SIZE = N / 4;

  __device__ static __forceinline__ int index(int slot) {
    return slot / 2 * 8 + threadIdx.x % 4 * 2 + slot % 2;
  }
};
template <int M, int N, int WARPS>
struct MmaAcc {
  static_assert(M % (16 * WARPS) == 0 && N % 16 == 0, "whole fragments, two along N at a time");
  using Rows = MmaRows<M, WARPS>;
  using Cols = MmaCols<N>;
  static constexpr int ROW_BLOCKS = M / (16 * WARPS);
  static constexpr int COL_BLOCKS = N / 8;
  static constexpr int SIZE = ROW_BLOCKS * COL_BLOCKS * 4;

  __device__ static constexpr int row_slot(int e) { return e / (COL_BLOCKS * 4) * 2 + e / 2 % 2; }
  __device__ static constexpr int col_slot(int e) { return e / 4 % COL_BLOCKS * 2 + e % 2; }
};

// The left operand of an M x K tile, two elements of T to a register: 16 x 16 fragments. Its
// registers are an accumulator's, rounded and packed in pairs, so that a score tile becomes the
// operand of the second matmul without moving between lanes.
// (PTX ISA: "Matrix fragments for mma.m16n8k16 with floating point type", A)
template <typename T, int M, int K, int WARPS>
struct MmaA {
  static constexpr int ROW_BLOCKS = M / (16 * WARPS);
  static constexpr int COL_BLOCKS = K / 16;
  unsigned value[ROW_BLOCKS][COL_BLOCKS][4];
};

// --- instructions -----------------------------------------------------------------------------

namespace detail {

// (PTX ISA: ldmatrix.sync.aligned.m8n8.x4.shared.b16, and .trans)
__device__ __forceinline__ void ldmatrix(unsigned (&r)[4], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void ldmatrix_trans(unsigned (&r)[4], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// c += a b, 16 x 8 x 16. (PTX ISA: mma.sync.aligned.m16n8k16.row.col.f32.T.T.f32)
template <typename T>
__device__ __forceinline__ void mma(float* c, const unsigned (&a)[4], unsigned b0, unsigned b1) {
  if constexpr (std::is_same_v<T, f16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    static_assert(std::is_same_v<T, bf16>, "matrix operands are f16 or bf16");
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

// The 16 x 16 fragments of a shared tile, one ldmatrix.x4 each: lane t gives the address of row
// t % 8 of 8 x 8 matrix t / 8, and r[t / 8] receives it. A lane's row modulo 8 is the lane modulo 8,
// so its swizzled chunk is one XOR.
template <typename T, int ROWS, int COLS>
struct Fragments {
  using Memory = Shared<T, ROWS, COLS>;
  unsigned lane_base;
  unsigned lane_chunk;

  // `lane_row` and `lane_chunk` place this lane's row in a fragment: 0 to 15, and 0 or 1.
  __device__ __forceinline__ Fragments(const Memory& tile, int lane_row, int chunk)
      : lane_base(tile.base + lane_row * Memory::PITCH), lane_chunk(chunk ^ threadIdx.x % 8) {}

  __device__ __forceinline__ unsigned address(int row_block, int col_block) const {
    return lane_base + row_block * 16 * Memory::PITCH + col_block / 4 * 128 +
           ((lane_chunk ^ (col_block % 4 * 2)) << 4);
  }
};

// The right operand, b[0] and b[1] for the left eight columns, b[2] and b[3] for the right eight:
// stored as N x K (keys by head size) and read as its transpose, or stored as K x N.
template <typename T, int N, int K>
struct RightTransposed {
  Fragments<T, N, K> fragments;

  __device__ __forceinline__ explicit RightTransposed(const Shared<T, N, K>& tile)
      : fragments(tile, threadIdx.x % 32 / 16 * 8 + threadIdx.x % 8, threadIdx.x / 8 % 2) {}
  __device__ __forceinline__ void load(unsigned (&b)[4], int k_block, int n_block) const {
    ldmatrix(b, fragments.address(n_block, k_block));
  }
};
template <typename T, int K, int N>
struct Right {
  Fragments<T, K, N> fragments;

  __device__ __forceinline__ explicit Right(const Shared<T, K, N>& tile)
      : fragments(tile, threadIdx.x % 16, threadIdx.x % 32 / 16) {}
  __device__ __forceinline__ void load(unsigned (&b)[4], int k_block, int n_block) const {
    ldmatrix_trans(b, fragments.address(k_block, n_block));
  }
};

// The walk over a product's fragments: K outermost, then pairs of n8 columns. The right fragment of
// the next step is loaded before the products of this one are issued, and the left fragments of the
// next K block half a block ahead, so that ldmatrix's latency lies behind mma instructions.
template <typename T, int M, int N, int WARPS, int K, typename L, typename R>
__device__ __forceinline__ void gemm(Tile<MmaAcc<M, N, WARPS>>& acc, L left, const R& right) {
  using Acc = MmaAcc<M, N, WARPS>;
  constexpr int N_BLOCKS = N / 16;
  constexpr int STEPS = K / 16 * N_BLOCKS;
  unsigned b[2][4];
  right.load(b[0], 0, 0);
  left.load(0);
#pragma unroll
  for (int step = 0; step < STEPS; ++step) {
    const int k_block = step / N_BLOCKS;
    const int n_block = step % N_BLOCKS;
    if (step + 1 < STEPS) right.load(b[(step + 1) % 2], (step + 1) / N_BLOCKS, (step + 1) % N_BLOCKS);
    if (n_block == N_BLOCKS / 2 && k_block + 1 < K / 16) left.load(k_block + 1);
#pragma unroll
    for (int row_block = 0; row_block < Acc::ROW_BLOCKS; ++row_block) {
      float* c = acc.value + (row_block * Acc::COL_BLOCKS + n_block * 2) * 4;
      mma<T>(c, left.get(row_block, k_block), b[step % 2][0], b[step % 2][1]);
      mma<T>(c + 4, left.get(row_block, k_block), b[step % 2][2], b[step % 2][3]);
    }
  }
}

// How gemm gets its left fragments: from shared memory, two K blocks at a time, or from registers.
template <typename T, int M, int K, int WARPS>
struct LeftFromShared {
  Fragments<T, M, K> fragments;
  unsigned a[2][M / (16 * WARPS)][4];

  __device__ __forceinline__ explicit LeftFromShared(const Shared<T, M, K>& tile)
      : fragments(tile, threadIdx.x / 32 * (M / WARPS) + threadIdx.x % 16, threadIdx.x % 32 / 16) {}
  __device__ __forceinline__ void load(int k_block) {
#pragma unroll
    for (int r = 0; r < M / (16 * WARPS); ++r) ldmatrix(a[k_block % 2][r], fragments.address(r, k_block));
  }
  __device__ __forceinline__ const unsigned (&get(int row_block, int k_block) const)[4] {
    return a[k_block % 2][row_block];
  }
};
template <typename T, int M, int K, int WARPS>
struct LeftFromRegisters {
  const MmaA<T, M, K, WARPS>& operand;

  __device__ __forceinline__ void load(int) {}
  __device__ __forceinline__ const unsigned (&get(int row_block, int k_block) const)[4] {
    return operand.value[row_block][k_block];
  }
};

template <typename T, int N, int K>
__device__ __forceinline__ auto right_operand(const Transposed<Shared<T, N, K>>& b) {
  return RightTransposed<T, N, K>(b.tile);
}
template <typename T, int K, int N>
__device__ __forceinline__ auto right_operand(const Shared<T, K, N>& b) {
  return Right<T, K, N>(b);
}

}  // namespace detail

// --- movement ---------------------------------------------------------------------------------

namespace detail {

// The 16-byte chunks of a tile, dealt to the threads of the block: thread t takes chunk t % CHUNKS
// of row t / CHUNKS, and so on until the tile ends.
template <int ROWS, int CHUNKS, typename F>
__device__ __forceinline__ void for_chunks(F f) {
#pragma unroll 1
  for (int i = threadIdx.x; i < ROWS * CHUNKS; i += blockDim.x) f(i / CHUNKS, i % CHUNKS);
}

// (PTX ISA: cp.async.cg.shared.global, whose src-size 0 reads nothing and writes zeros)
__device__ __forceinline__ void cp_async(unsigned to, const void* from, bool inside) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(inside ? 16 : 0)
               : "memory");
}

// The same deal for blocks of four warps, which is what the launchers use: a known number of steps,
// one address to the row above plus a constant.
constexpr int COPY_THREADS = 128;

template <typename T, int ROWS, int COLS>
__device__ __forceinline__ void copy_async_unrolled(const Shared<T, ROWS, COLS>& dst,
                                                    const GmemTile<T>& src) {
  constexpr int CHUNKS = Shared<T, ROWS, COLS>::CHUNKS;
  constexpr int STEP = COPY_THREADS / CHUNKS;
  static_assert(ROWS % STEP == 0 && STEP % 8 == 0, "whole steps that keep the swizzle");
  const int row = threadIdx.x / CHUNKS;
  const int chunk = threadIdx.x % CHUNKS;
  const unsigned to = dst.chunk(row, chunk);
  const T* from = src.row(row) + chunk * 8;
  const long long step = STEP * src.row_stride;
#pragma unroll
  for (int i = 0; i < ROWS / STEP; ++i) {
    cp_async(to + i * STEP * Shared<T, ROWS, COLS>::PITCH, from, src.has(row + i * STEP));
    from += step;
  }
}

// Eight elements of one row, one by one: for rows that 16-byte accesses cannot reach.
template <typename T>
__device__ __forceinline__ uint4 gather(const T* from, long long stride) {
  unsigned short bits[8];
#pragma unroll
  for (int k = 0; k < 8; ++k) bits[k] = reinterpret_cast<const unsigned short&>(from[k * stride]);
  return make_uint4(bits[0] | bits[1] << 16, bits[2] | bits[3] << 16, bits[4] | bits[5] << 16,
                    bits[6] | bits[7] << 16);
}
template <typename T>
__device__ __forceinline__ void scatter(T* to, long long stride, uint4 chunk) {
  const unsigned words[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    reinterpret_cast<unsigned short&>(to[k * stride]) =
        static_cast<unsigned short>(words[k / 2] >> (k % 2 * 16));
  }
}

// (PTX ISA: ld.shared.v4.b32, st.shared.v4.b32)
__device__ __forceinline__ uint4 load_chunk(unsigned address) {
  uint4 v;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}
__device__ __forceinline__ void store_chunk(unsigned address, uint4 v) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v.x), "r"(v.y),
               "r"(v.z), "r"(v.w)
               : "memory");
}

}  // namespace detail

// Copies a tile of global memory to shared memory, by all threads of the block; rows outside the
// tensor become 0. Asynchronous where the rows allow 16-byte accesses, element by element (and done
// on return) where they do not; either way the thread may rely on it after wait_async, the others
// after sync.
template <typename T, int ROWS, int COLS>
__device__ __forceinline__ void copy_async(const Shared<T, ROWS, COLS>& dst,
                                           const GmemTile<T>& src) {
  if (__builtin_expect(src.vectors & (blockDim.x == detail::COPY_THREADS), true)) {
    detail::copy_async_unrolled(dst, src);
    return;
  }
  detail::for_chunks<ROWS, Shared<T, ROWS, COLS>::CHUNKS>([&](int row, int chunk) {
    if (src.vectors) {
      detail::cp_async(dst.chunk(row, chunk), src.row(row) + chunk * 8, src.has(row));
    } else {
      uint4 v = make_uint4(0, 0, 0, 0);
      if (src.has(row)) {
        v = detail::gather(src.row(row) + chunk * 8 * src.column_stride, src.column_stride);
      }
      detail::store_chunk(dst.chunk(row, chunk), v);
    }
  });
}

// copy_async of the tensor's rows in [begin, end); the tile's other rows become 0.
template <typename T, int ROWS, int COLS>
__device__ __forceinline__ void copy_async_rows(const Shared<T, ROWS, COLS>& dst, GmemTile<T> src,
                                                int begin, int end) {
  begin = max(begin, 0);
  src.base += begin * src.row_stride;
  src.first -= begin;
  src.rows = max(min(end, src.rows) - begin, 0);
  copy_async(dst, src);
}

// Closes the group of copies that this thread has started. (PTX ISA: cp.async.commit_group)
__device__ __forceinline__ void commit_async() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most N of this thread's newest groups are in flight. (PTX ISA: cp.async.wait_group)
template <int N>
__device__ __forceinline__ void wait_async() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// All threads of the block have arrived, and see each other's shared memory. (PTX ISA: barrier.sync)
__device__ __forceinline__ void sync() { __syncthreads(); }

// Rounds an accumulator to T and writes it to shared memory.
template <typename T, int M, int N, int WARPS>
__device__ __forceinline__ void store(const Shared<T, M, N>& dst,
                                      const Tile<MmaAcc<M, N, WARPS>>& tile) {
  using Acc = MmaAcc<M, N, WARPS>;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int e = 0; e < Acc::SIZE; e += 2) {
    const int row = Acc::Rows::index(Acc::row_slot(e));
    const unsigned address = dst.chunk(row, Acc::col_slot(e) / 2) + lane % 4 * 4;
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(address),
                 "r"(pack<T>(tile.value[e], tile.value[e + 1]))
                 : "memory");
  }
}

// Copies a tile of shared memory to global memory, by all threads of the block; rows outside the
// tensor are dropped. 16 bytes at a time where the rows allow it, else element by element.
template <typename T, int ROWS, int COLS>
__device__ __forceinline__ void copy(const GmemTile<T>& dst, const Shared<T, ROWS, COLS>& src) {
  constexpr int CHUNKS = Shared<T, ROWS, COLS>::CHUNKS;
  detail::for_chunks<ROWS, CHUNKS>([&](int row, int chunk) {
    if (!dst.has(row)) return;
    const uint4 v = detail::load_chunk(src.chunk(row, chunk));
    if (dst.vectors) {
      *reinterpret_cast<uint4*>(dst.row(row) + chunk * 8) = v;
    } else {
      detail::scatter(dst.row(row) + chunk * 8 * dst.column_stride, dst.column_stride, v);
    }
  });
}

// --- matmul -----------------------------------------------------------------------------------

// An accumulator rounded to T, as the left operand of the next matmul. The accumulator's fragments
// 2 k and 2 k + 1 are the halves of operand fragment k, register by register.
template <typename T, int M, int N, int WARPS>
__device__ __forceinline__ MmaA<T, M, N, WARPS> to_operand(const Tile<MmaAcc<M, N, WARPS>>& tile) {
  MmaA<T, M, N, WARPS> operand;
#pragma unroll
  for (int e = 0; e < MmaAcc<M, N, WARPS>::SIZE; e += 2) {
    const int block = e / 8;
    operand.value[block / (N / 16)][block % (N / 16)][e / 2 % 4] =
        pack<T>(tile.value[e], tile.value[e + 1]);
  }
  return operand;
}

// acc += a b: a (M x K) in shared memory or an operand in registers, b (K x N) in shared memory as
// it lies or as a transpose. Done on return. Products are exact, sums are float.
template <typename T, int M, int N, int WARPS, int K, typename B>
__device__ __forceinline__ void gemm(Tile<MmaAcc<M, N, WARPS>>& acc, const Shared<T, M, K>& a,
                                     const B& b) {
  detail::gemm<T, M, N, WARPS, K>(acc, detail::LeftFromShared<T, M, K, WARPS>(a),
                                  detail::right_operand(b));
}
template <typename T, int M, int N, int WARPS, int K, typename B>
__device__ __forceinline__ void gemm(Tile<MmaAcc<M, N, WARPS>>& acc,
                                     const MmaA<T, M, K, WARPS>& a, const B& b) {
  detail::gemm<T, M, N, WARPS, K>(acc, detail::LeftFromRegisters<T, M, K, WARPS>{a},
                                  detail::right_operand(b));
}

}  // namespace cubridge
