// Every atomic on a place of its own, so that its result does not depend on an order: in global
// memory, in shared memory, and by a generic address of either.
#include <cstdint>

namespace {

__device__ __forceinline__ uint32_t at(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

}  // namespace

// Each thread has 16 bytes in `values`, and leaves 32 in `target`.
#define KIND(name, reg, load, op, ...)                                                            \
  extern "C" __global__ void name(const uint32_t* source, uint32_t* target) {                     \
    __shared__ __align__(16) uint32_t values[128 * 4];                                            \
    const int t = threadIdx.x;                                                                    \
    for (int k = 0; k < 4; k++) values[4 * t + k] = source[(4 * t + k) * 3 % 4096];               \
    for (int k = 0; k < 8; k++) target[8 * t + k] = source[(8 * t + k) * 5 % 4096];               \
    load x = *reinterpret_cast<const load*>(source + 4 * (t * 7 % 512)), old, was, been;          \
    load y = *reinterpret_cast<const load*>(source + 4 * (t * 11 % 512));                         \
    uint32_t here = at(&values[4 * t]);                                                           \
    asm volatile("atom.shared." op " %0, [%1], " __VA_ARGS__ ";"                                  \
                 : "=" reg(old) : "r"(here), reg(x), reg(y) : "memory");                          \
    asm volatile("atom.global." op " %0, [%1], " __VA_ARGS__ ";"                                  \
                 : "=" reg(was) : "l"(target + 8 * t), reg(x), reg(y) : "memory");                \
    asm volatile("atom." op " %0, [%1], " __VA_ARGS__ ";"                                         \
                 : "=" reg(been) : "l"(&values[4 * t]), reg(x), reg(y) : "memory");               \
    load* out = reinterpret_cast<load*>(target + 1024 + 8 * t);                                   \
    out[0] = old, out[1] = was, out[2] = been;                                                    \
    out[3] = *reinterpret_cast<load*>(&values[4 * t]);                                            \
  }
#define ONE(name, reg, load, op) KIND(name, reg, load, op, "%2")

ONE(add_f32, "f", float, "add.f32")
ONE(add_u64, "l", uint64_t, "add.u64")
ONE(add_u32, "r", uint32_t, "add.u32")
ONE(add_s32, "r", uint32_t, "add.s32")
ONE(add_f64, "d", double, "add.f64")
ONE(add_f16x2, "r", uint32_t, "add.noftz.f16x2")
ONE(add_bf16x2, "r", uint32_t, "add.noftz.bf16x2")
ONE(add_f16, "h", uint16_t, "add.noftz.f16")
ONE(add_bf16, "h", uint16_t, "add.noftz.bf16")
ONE(min_u32, "r", uint32_t, "min.u32")
ONE(min_s32, "r", uint32_t, "min.s32")
ONE(max_u32, "r", uint32_t, "max.u32")
ONE(max_s32, "r", uint32_t, "max.s32")
ONE(min_u64, "l", uint64_t, "min.u64")
ONE(max_u64, "l", uint64_t, "max.u64")
ONE(min_s64, "l", uint64_t, "min.s64")
ONE(max_s64, "l", uint64_t, "max.s64")
ONE(and_b32, "r", uint32_t, "and.b32")
ONE(or_b32, "r", uint32_t, "or.b32")
ONE(xor_b32, "r", uint32_t, "xor.b32")
ONE(and_b64, "l", uint64_t, "and.b64")
ONE(or_b64, "l", uint64_t, "or.b64")
ONE(exch_b32, "r", uint32_t, "exch.b32")
ONE(exch_b64, "l", uint64_t, "exch.b64")
ONE(inc_u32, "r", uint32_t, "inc.u32")
ONE(dec_u32, "r", uint32_t, "dec.u32")
KIND(cas_b32, "r", uint32_t, "cas.b32", "%2, %3")
KIND(cas_b64, "l", uint64_t, "cas.b64", "%2, %3")
KIND(cas_b16, "h", uint16_t, "cas.b16", "%2, %3")

// Sums that nobody reads: each place gets two of them, of whole numbers.
#define RED(name, reg, load, op)                                                                  \
  extern "C" __global__ void name(const uint32_t* source, uint32_t* target) {                     \
    __shared__ __align__(16) load values[64];                                                     \
    const int t = threadIdx.x;                                                                    \
    load x = static_cast<load>(source[t] % 64), *out = reinterpret_cast<load*>(target);           \
    if (t < 64) values[t] = 0;                                                                    \
    __syncthreads();                                                                              \
    asm volatile("red.shared." op " [%0], %1;" ::"r"(at(&values[t % 64])), reg(x) : "memory");    \
    asm volatile("red.global." op " [%0], %1;" ::"l"(out + t % 64), reg(x) : "memory");           \
    asm volatile("red." op " [%0], %1;" ::"l"(out + 64 + t % 64), reg(x) : "memory");             \
    __syncthreads();                                                                              \
    if (t < 64) out[128 + t] = values[t];                                                         \
  }
RED(red_f32, "f", float, "add.f32")
RED(red_u32, "r", uint32_t, "add.u32")
RED(red_s32, "r", uint32_t, "add.s32")
RED(red_u64, "l", uint64_t, "add.u64")
RED(red_f64, "d", double, "add.f64")
RED(red_max_u32, "r", uint32_t, "max.u32")
RED(red_max_s32, "r", uint32_t, "max.s32")
RED(red_or_b32, "r", uint32_t, "or.b32")
