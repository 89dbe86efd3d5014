// Scalar functions of kernel text, each with its exact meaning. Float functions that are not listed
// here are CUDA's own single-precision overloads of the same name (CUDA C++ Programming Guide,
// "Mathematical Functions"): exp, exp2, log, log2, tanh, sqrt, rsqrt, sin, cos, pow, fma, floor,
// ceil, abs, min, max (min and max return the other operand when one is NaN).
#pragma once

#include <type_traits>

#include "args.cuh"

namespace cubridge {

constexpr float LOG2E = 1.4426950408889634f;  // log2(e)
constexpr float LN2 = 0.6931471805599453f;    // ln(2)

// 2^x. Maximum relative error 2^-22.5; subnormal inputs count as 0 and subnormal results are 0;
// 2^-inf = +0, 2^+inf = +inf, NaN stays NaN. (PTX ISA: ex2.approx.ftz.f32)
__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// log2(x). Maximum absolute error 2^-22 on (0.5, 2), relative 2^-22 elsewhere; subnormal inputs
// count as 0; log2(0) = -inf, NaN below 0. (PTX ISA: lg2.approx.ftz.f32)
__device__ __forceinline__ float log2_approx(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 1 / x. Maximum error 1 ulp; subnormal inputs count as 0 of their sign, subnormal results are 0;
// 1/0 = inf of its sign. (PTX ISA: rcp.approx.ftz.f32)
__device__ __forceinline__ float rcp_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// tanh(x). Maximum relative error 2^-11, which is below half an ulp of bf16 but above that of f16.
// (PTX ISA: tanh.approx.f32)
__device__ __forceinline__ float tanh_approx(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 1 / (1 + exp(-x)). Relative error under 2^-20 for |x| < 8, growing with |x| as the rounding of
// x * log2(e) does; exactly 0 below about -88 and 1 above about 17.
__device__ __forceinline__ float sigmoid(float x) {
  return rcp_approx(1.0f + exp2_approx(-LOG2E * x));
}

// 1 / (1 + exp(-x)) through one tanh.approx: maximum absolute error 2^-12.
__device__ __forceinline__ float sigmoid_approx(float x) {
  return fmaf(0.5f, tanh_approx(0.5f * x), 0.5f);
}

// The quotient rounded towards minus infinity, as Python's a // b; b must not be 0. A power of two
// that the compiler knows becomes one shift: without the dividend's low bits the quotient is exact.
__host__ __device__ constexpr int floor_div(int a, int b) {
  if (b > 0 && (b & (b - 1)) == 0) return (a & -b) / b;
  return a / b - ((a % b != 0 && ((a < 0) != (b < 0))) ? 1 : 0);
}

// The remainder with the sign of b, as Python's a % b; b must not be 0.
__host__ __device__ constexpr int floor_mod(int a, int b) {
  if (b > 0 && (b & (b - 1)) == 0) return a & (b - 1);
  return a % b + ((a % b != 0 && ((a < 0) != (b < 0))) ? b : 0);
}

// An element as kernel text computes with it: f16 and bf16 widen to float (exactly), float, int and
// bool stay.
__device__ __forceinline__ float widen(f16 x) { return __half2float(x); }
__device__ __forceinline__ float widen(bf16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ int widen(int x) { return x; }
__device__ __forceinline__ bool widen(bool x) { return x; }

// Rounds to T, to nearest even.
template <typename T>
__device__ __forceinline__ T narrow(float x) {
  if constexpr (std::is_same_v<T, f16>) {
    return __float2half_rn(x);
  } else if constexpr (std::is_same_v<T, bf16>) {
    return __float2bfloat16_rn(x);
  } else {
    static_assert(std::is_same_v<T, float>, "narrow rounds to f16, bf16 or float");
    return x;
  }
}

// Two floats rounded to T and packed as the registers of a matrix operand hold them: `low` in bits
// 0 to 15. (PTX ISA: cvt.rn.f16x2.f32, cvt.rn.bf16x2.f32)
template <typename T>
__device__ __forceinline__ unsigned pack(float low, float high) {
  unsigned packed;
  if constexpr (std::is_same_v<T, f16>) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  } else {
    static_assert(std::is_same_v<T, bf16>, "matrix operands are f16 or bf16");
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  }
  return packed;
}

}  // namespace cubridge
