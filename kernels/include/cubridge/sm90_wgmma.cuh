// Hopper's warpgroup matrix multiply: descriptors of swizzled shared tiles, the instruction for each
// width, and gemm_async over whole tiles. A warpgroup's accumulator has 64 rows.
//
// An accumulator, its register operand and its shared operands are in flight from gemm_async until
// mma_wait has let its group pass: the registers must not be touched, the stage not be refilled.
#pragma once

#include <cstdint>
#include <type_traits>

#include "scalar.cuh"
#include "sm90_async.cuh"
#include "sm90_tile.cuh"

namespace cubridge {

// ---- order ----------------------------------------------------------------------------------

// Before the first gemm_async after registers of its operands were written.
__device__ __forceinline__ void mma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void mma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// At most PENDING of this warpgroup's newest committed groups are still in flight.
template <int PENDING>
__device__ __forceinline__ void mma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// ---- descriptors ----------------------------------------------------------------------------

// A matrix descriptor for the 128-byte swizzle (PTX ISA, "matrix descriptor"): address and byte
// offsets in units of 16 bytes. 8 rows of 128 bytes are one swizzle atom of 1024 bytes.
//  K-major (the contracted dimension is contiguous): the stride offset steps 8 rows of M or N; the
//    leading offset is unused.
//  MN-major: the stride offset steps 8 rows of K, the leading offset steps 64 columns of N (a panel).
__device__ __forceinline__ uint64_t matrix_descriptor(uint32_t address, uint32_t leading_bytes) {
  constexpr uint64_t SWIZZLE_128 = 1ull << 62;
  constexpr uint64_t STRIDE = static_cast<uint64_t>(1024 >> 4) << 32;
  return SWIZZLE_128 | STRIDE | (static_cast<uint64_t>(leading_bytes >> 4) << 16) |
         static_cast<uint64_t>((address & 0x3ffffu) >> 4);
}

// ---- the instruction, by width --------------------------------------------------------------

// One step of K = 16: d (64 x N, f32) = or += a b. `ss`: a from shared memory (K-major); `rs`: a from
// registers; `_init`: d's old value is not read. B_MN: b is stored K x N with N contiguous.
template <typename T, int N>
struct Wgmma;

// clang-format off
// %0 .. %(R - 1), and d[0] .. d[R - 1] under an asm constraint.
#define CUBRIDGE_P8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define CUBRIDGE_P16 CUBRIDGE_P8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define CUBRIDGE_P24 CUBRIDGE_P16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define CUBRIDGE_P32 CUBRIDGE_P24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define CUBRIDGE_P40 CUBRIDGE_P32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define CUBRIDGE_P48 CUBRIDGE_P40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define CUBRIDGE_P56 CUBRIDGE_P48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define CUBRIDGE_P64 CUBRIDGE_P56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define CUBRIDGE_P72 CUBRIDGE_P64 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define CUBRIDGE_P80 CUBRIDGE_P72 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define CUBRIDGE_P88 CUBRIDGE_P80 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define CUBRIDGE_P96 CUBRIDGE_P88 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define CUBRIDGE_P104 CUBRIDGE_P96 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define CUBRIDGE_P112 CUBRIDGE_P104 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define CUBRIDGE_P120 CUBRIDGE_P112 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define CUBRIDGE_P128 CUBRIDGE_P120 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define CUBRIDGE_D8_AT(C, d, b) C(d[(b) + 0]), C(d[(b) + 1]), C(d[(b) + 2]), C(d[(b) + 3]), C(d[(b) + 4]), C(d[(b) + 5]), C(d[(b) + 6]), C(d[(b) + 7])
#define CUBRIDGE_D8(C, d) CUBRIDGE_D8_AT(C, d, 0)
#define CUBRIDGE_D16(C, d) CUBRIDGE_D8(C, d), CUBRIDGE_D8_AT(C, d, 8)
#define CUBRIDGE_D24(C, d) CUBRIDGE_D16(C, d), CUBRIDGE_D8_AT(C, d, 16)
#define CUBRIDGE_D32(C, d) CUBRIDGE_D24(C, d), CUBRIDGE_D8_AT(C, d, 24)
#define CUBRIDGE_D40(C, d) CUBRIDGE_D32(C, d), CUBRIDGE_D8_AT(C, d, 32)
#define CUBRIDGE_D48(C, d) CUBRIDGE_D40(C, d), CUBRIDGE_D8_AT(C, d, 40)
#define CUBRIDGE_D56(C, d) CUBRIDGE_D48(C, d), CUBRIDGE_D8_AT(C, d, 48)
#define CUBRIDGE_D64(C, d) CUBRIDGE_D56(C, d), CUBRIDGE_D8_AT(C, d, 56)
#define CUBRIDGE_D72(C, d) CUBRIDGE_D64(C, d), CUBRIDGE_D8_AT(C, d, 64)
#define CUBRIDGE_D80(C, d) CUBRIDGE_D72(C, d), CUBRIDGE_D8_AT(C, d, 72)
#define CUBRIDGE_D88(C, d) CUBRIDGE_D80(C, d), CUBRIDGE_D8_AT(C, d, 80)
#define CUBRIDGE_D96(C, d) CUBRIDGE_D88(C, d), CUBRIDGE_D8_AT(C, d, 88)
#define CUBRIDGE_D104(C, d) CUBRIDGE_D96(C, d), CUBRIDGE_D8_AT(C, d, 96)
#define CUBRIDGE_D112(C, d) CUBRIDGE_D104(C, d), CUBRIDGE_D8_AT(C, d, 104)
#define CUBRIDGE_D120(C, d) CUBRIDGE_D112(C, d), CUBRIDGE_D8_AT(C, d, 112)
#define CUBRIDGE_D128(C, d) CUBRIDGE_D120(C, d), CUBRIDGE_D8_AT(C, d, 120)

#define CUBRIDGE_MMA(N, R, TYPE, A, B, ADD, TRANSPOSE) \
  "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" CUBRIDGE_P##R "}, " A ", " B ", " ADD ", 1, 1, " TRANSPOSE ";"

// P0 .. P5 are the numbers of the operands after the R = N / 2 accumulator registers.
#define CUBRIDGE_WGMMA_TYPED(ELEMENT, TYPE, N, R, P0, P1, P2, P3, P4, P5) \
  template <> \
  struct Wgmma<ELEMENT, N> { \
    template <int B_MN> \
    static __device__ __forceinline__ void ss(float (&d)[R], uint64_t a, uint64_t b) { \
      asm volatile(CUBRIDGE_MMA(N, R, TYPE, "%" #P0, "%" #P1, "1", "0, %" #P2) : CUBRIDGE_D##R("+f", d) : "l"(a), "l"(b), "n"(B_MN)); \
    } \
    template <int B_MN> \
    static __device__ __forceinline__ void ss_init(float (&d)[R], uint64_t a, uint64_t b) { \
      asm volatile(CUBRIDGE_MMA(N, R, TYPE, "%" #P0, "%" #P1, "0", "0, %" #P2) : CUBRIDGE_D##R("=f", d) : "l"(a), "l"(b), "n"(B_MN)); \
    } \
    template <int B_MN> \
    static __device__ __forceinline__ void rs(float (&d)[R], const uint32_t (&a)[4], uint64_t b) { \
      asm volatile(CUBRIDGE_MMA(N, R, TYPE, "{%" #P0 ", %" #P1 ", %" #P2 ", %" #P3 "}", "%" #P4, "1", "%" #P5) : CUBRIDGE_D##R("+f", d) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(B_MN)); \
    } \
    template <int B_MN> \
    static __device__ __forceinline__ void rs_init(float (&d)[R], const uint32_t (&a)[4], uint64_t b) { \
      asm volatile(CUBRIDGE_MMA(N, R, TYPE, "{%" #P0 ", %" #P1 ", %" #P2 ", %" #P3 "}", "%" #P4, "0", "%" #P5) : CUBRIDGE_D##R("=f", d) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(B_MN)); \
    } \
  };
#define CUBRIDGE_WGMMA(N, R, P0, P1, P2, P3, P4, P5) \
  CUBRIDGE_WGMMA_TYPED(bf16, "bf16", N, R, P0, P1, P2, P3, P4, P5) \
  CUBRIDGE_WGMMA_TYPED(f16, "f16", N, R, P0, P1, P2, P3, P4, P5)

CUBRIDGE_WGMMA(16, 8, 8, 9, 10, 11, 12, 13)
CUBRIDGE_WGMMA(32, 16, 16, 17, 18, 19, 20, 21)
CUBRIDGE_WGMMA(48, 24, 24, 25, 26, 27, 28, 29)
CUBRIDGE_WGMMA(64, 32, 32, 33, 34, 35, 36, 37)
CUBRIDGE_WGMMA(80, 40, 40, 41, 42, 43, 44, 45)
CUBRIDGE_WGMMA(96, 48, 48, 49, 50, 51, 52, 53)
CUBRIDGE_WGMMA(112, 56, 56, 57, 58, 59, 60, 61)
CUBRIDGE_WGMMA(128, 64, 64, 65, 66, 67, 68, 69)
CUBRIDGE_WGMMA(144, 72, 72, 73, 74, 75, 76, 77)
CUBRIDGE_WGMMA(160, 80, 80, 81, 82, 83, 84, 85)
CUBRIDGE_WGMMA(176, 88, 88, 89, 90, 91, 92, 93)
CUBRIDGE_WGMMA(192, 96, 96, 97, 98, 99, 100, 101)
CUBRIDGE_WGMMA(208, 104, 104, 105, 106, 107, 108, 109)
CUBRIDGE_WGMMA(224, 112, 112, 113, 114, 115, 116, 117)
CUBRIDGE_WGMMA(240, 120, 120, 121, 122, 123, 124, 125)
CUBRIDGE_WGMMA(256, 128, 128, 129, 130, 131, 132, 133)
// clang-format on

// ---- whole tiles ----------------------------------------------------------------------------

// A shared tile as the register operand a. (PTX ISA: ldmatrix.sync.aligned.m8n8.x4.shared.b16; its
// four 8 x 8 matrices are the operand's four registers.)
template <typename T, int K>
__device__ __forceinline__ Operand<WgmmaA<64, K>, T> load_operand(SharedTile<T, 64, K> tile) {
  Operand<WgmmaA<64, K>, T> operand;
  const int thread = static_cast<int>(threadIdx.x);
  const int row = thread % 128 / 32 * 16 + thread % 16;
  const uint32_t start = tile.address + static_cast<uint32_t>(row) * 128u;
#pragma unroll
  for (int k = 0; k < K / 16; ++k) {
    const int unit = (k % 4 * 2 + thread % 32 / 16) ^ (row % 8);
    const uint32_t address = start + k / 4 * SharedTile<T, 64, K>::PANEL_BYTES + unit * 16;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(operand.value[k][0]), "=r"(operand.value[k][1]), "=r"(operand.value[k][2]),
                   "=r"(operand.value[k][3])
                 : "r"(address)
                 : "memory");
  }
  return operand;
}

namespace detail {

// acc (64 x N) = or += a (64 x K, shared) b^T (b: N x K, shared), K contiguous in both.
template <bool INIT, typename T, int N, int K, int PA, int PB>
__device__ __forceinline__ void gemm_shared(Tile<WgmmaAcc<64, N>>& acc, SharedTile<T, 64, K, PA> a,
                                            SharedTile<T, N, K, PB> b) {
  using Instruction = Wgmma<T, N>;
  const uint64_t a_start = matrix_descriptor(a.address, 16);
  const uint64_t b_start = matrix_descriptor(b.address, 16);
#pragma unroll
  for (int k = 0; k < K / 16; ++k) {
    const int in_panel = k % 4 * 32;
    const uint64_t a_at = a_start + ((k / 4 * a.PANEL_BYTES + in_panel) >> 4);
    const uint64_t b_at = b_start + ((k / 4 * b.PANEL_BYTES + in_panel) >> 4);
    if (INIT && k == 0) {
      Instruction::template ss_init<0>(acc.value, a_at, b_at);
    } else {
      Instruction::template ss<0>(acc.value, a_at, b_at);
    }
  }
}

// acc (64 x N) = or += a (64 x K, registers) b (K x N, shared, N contiguous).
template <bool INIT, typename T, int N, int K, int PB>
__device__ __forceinline__ void gemm_registers(Tile<WgmmaAcc<64, N>>& acc,
                                               const Operand<WgmmaA<64, K>, T>& a,
                                               SharedTile<T, K, N, PB> b) {
  using Instruction = Wgmma<T, N>;
  const uint64_t b_start = matrix_descriptor(b.address, b.PANEL_BYTES);
#pragma unroll
  for (int k = 0; k < K / 16; ++k) {
    const uint64_t b_at = b_start + (k * 16 * 128 >> 4);
    if (INIT && k == 0) {
      Instruction::template rs_init<1>(acc.value, a.value[k], b_at);
    } else {
      Instruction::template rs<1>(acc.value, a.value[k], b_at);
    }
  }
}

// acc (64 x N) = or += a (64 x K, registers) b^T (b: N x K, shared, K contiguous).
template <bool INIT, typename T, int N, int K, int PB>
__device__ __forceinline__ void gemm_registers(Tile<WgmmaAcc<64, N>>& acc,
                                               const Operand<WgmmaA<64, K>, T>& a,
                                               Transposed<SharedTile<T, N, K, PB>> b) {
  using Instruction = Wgmma<T, N>;
  const uint64_t b_start = matrix_descriptor(b.tile.address, 16);
#pragma unroll
  for (int k = 0; k < K / 16; ++k) {
    const uint64_t b_at =
        b_start + ((k / 4 * b.tile.PANEL_BYTES + k % 4 * 32) >> 4);
    if (INIT && k == 0) {
      Instruction::template rs_init<0>(acc.value, a.value[k], b_at);
    } else {
      Instruction::template rs<0>(acc.value, a.value[k], b_at);
    }
  }
}

}  // namespace detail

// gemm_async(acc, a, b): acc += a b, in flight until mma_wait. a: a shared tile of 64 rows or a
// register operand; b: the transpose of a shared tile, or a shared tile where a is in registers.
template <typename T, int N, int K, int PA, int PB>
__device__ __forceinline__ void gemm_async(Tile<WgmmaAcc<64, N>>& acc, SharedTile<T, 64, K, PA> a,
                                           Transposed<SharedTile<T, N, K, PB>> b) {
  detail::gemm_shared<false>(acc, a, b.tile);
}
template <typename T, int N, int K, int PB>
__device__ __forceinline__ void gemm_async(Tile<WgmmaAcc<64, N>>& acc,
                                           const Operand<WgmmaA<64, K>, T>& a,
                                           SharedTile<T, K, N, PB> b) {
  detail::gemm_registers<false>(acc, a, b);
}
template <typename T, int N, int K, int PB>
__device__ __forceinline__ void gemm_async(Tile<WgmmaAcc<64, N>>& acc,
                                           const Operand<WgmmaA<64, K>, T>& a,
                                           Transposed<SharedTile<T, N, K, PB>> b) {
  detail::gemm_registers<false>(acc, a, b);
}

// gemm_async_init(acc, a, b): acc = a b; what acc held is not read.
template <typename T, int N, int K, int PA, int PB>
__device__ __forceinline__ void gemm_async_init(Tile<WgmmaAcc<64, N>>& acc, SharedTile<T, 64, K, PA> a,
                                                Transposed<SharedTile<T, N, K, PB>> b) {
  detail::gemm_shared<true>(acc, a, b.tile);
}
template <typename T, int N, int K, int PB>
__device__ __forceinline__ void gemm_async_init(Tile<WgmmaAcc<64, N>>& acc,
                                                const Operand<WgmmaA<64, K>, T>& a,
                                                SharedTile<T, K, N, PB> b) {
  detail::gemm_registers<true>(acc, a, b);
}
template <typename T, int N, int K, int PB>
__device__ __forceinline__ void gemm_async_init(Tile<WgmmaAcc<64, N>>& acc,
                                                const Operand<WgmmaA<64, K>, T>& a,
                                                Transposed<SharedTile<T, N, K, PB>> b) {
  detail::gemm_registers<true>(acc, a, b);
}

}  // namespace cubridge
