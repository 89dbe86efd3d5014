// The least and the largest of what threads give, in shared memory, and stores by generic addresses.
#include <cstdint>

__device__ __forceinline__ void store(float* to, float value) {
  asm volatile("st.f32 [%0], %1;" ::"l"(to), "f"(value) : "memory");
}

extern "C" __global__ void shared_atomics(const uint32_t* source, uint32_t* target) {
  __shared__ unsigned least[4];
  __shared__ int most[4];
  __shared__ float held[128];
  const int t = threadIdx.x;
  if (t < 4) {
    least[t] = source[200 + t];
    most[t] = static_cast<int>(source[300 + t]);
  }
  __syncthreads();
  atomicMin(&least[t % 4], source[t]);
  atomicMax(&most[t % 4], static_cast<int>(source[t]));
  store(&held[t ^ 1], __uint_as_float(source[t]));
  store(reinterpret_cast<float*>(target) + 8 + t, __uint_as_float(source[128 + t]));
  __syncthreads();
  target[256 + t] = __float_as_uint(held[t]);
  if (t < 4) {
    target[t] = least[t];
    target[4 + t] = static_cast<unsigned>(most[t]);
  }
}
