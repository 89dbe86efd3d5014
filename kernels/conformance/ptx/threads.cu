// Instructions whose result depends on other threads: atomics, named barriers, mbarriers.

#include <cstdint>

extern "C" __global__ void atomics(const uint32_t* source, uint32_t* target) {
  // Sums, extremes and bits do not depend on the order.
  uint32_t x = source[blockIdx.x * 128 + threadIdx.x];
  atomicAdd(target + 0, x);
  atomicMax(reinterpret_cast<int*>(target) + 1, static_cast<int>(x));
  atomicMin(target + 2, x);
  atomicAnd(target + 3, x | 0xFF00FF00u);
  atomicOr(target + 4, x & 0x00FF00FFu);
  atomicXor(target + 5, x);
  atomicAdd(reinterpret_cast<unsigned long long*>(target) + 4, static_cast<unsigned long long>(x));
}

extern "C" __global__ void barriers(const uint32_t* source, uint32_t* target) {
  // Warp 0 and 1 meet at barrier 1, all at barrier 2, in another order than they are numbered.
  __shared__ uint32_t values[128];
  int t = threadIdx.x;
  values[t] = source[t];
  if (t < 64) {
    asm volatile("bar.sync 1, 64;" ::: "memory");
    values[t] += values[t ^ 32] & 0;  // read after the barrier
    asm volatile("bar.sync 2, 128;" ::: "memory");
    target[t] = values[127 - t];
  } else {
    asm volatile("bar.arrive 2, 128;" ::: "memory");
    target[t] = source[t] + 1;
  }
}

extern "C" __global__ void mbarriers(const uint32_t* source, uint32_t* target) {
  // Four phases of one mbarrier: a warp waits for the other three.
  __shared__ __align__(8) uint64_t barrier;
  __shared__ uint32_t values[128];
  int t = threadIdx.x;
  uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(&barrier));
  if (t == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(address), "r"(96));
  __syncthreads();
  uint32_t sum = 0;
  for (int phase = 0; phase < 4; phase++) {
    if (t >= 32) {
      values[t] = source[phase * 128 + t];
      asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(address) : "memory");
    } else {
      asm volatile(
          "{\n.reg .pred p;\nagain:\n"
          "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra again;\n}"
          :: "r"(address), "r"(phase & 1) : "memory");
      sum += values[32 + t] + values[64 + t] + values[96 + t];
    }
    __syncthreads();
  }
  target[t] = sum;
}
