// Work that is handed out while blocks run: numbers that they claim from a word of global memory, and
// words of shared memory in which one thread tells the others what it has claimed.
#pragma once

#include "gmem.cuh"

namespace cubridge {

// Takes the number that the vector's first word holds and leaves the next one, 0 after limit - 1, in
// one step: blocks that claim from one word get different numbers, and `limit` claims leave the word
// as it was. It orders no other memory. (PTX ISA: atom.global.inc.u32)
__device__ __forceinline__ int claim(const GmemVector<int>& src, int limit) {
  return static_cast<int>(
      atomicInc(reinterpret_cast<unsigned*>(src.at(0)), static_cast<unsigned>(limit - 1)));
}

// A whole number in shared memory, in 16 bytes of its own. `address` is of the shared state space.
struct SharedWord {
  unsigned address;
};

template <int COUNT>
struct SharedWords {
  unsigned address;
  __device__ __forceinline__ SharedWord operator[](int index) const {
    return {address + static_cast<unsigned>(index) * 16u};
  }
};

// `value` to the word, by one thread; others may fetch it after a barrier that it arrives at.
__device__ __forceinline__ void post(SharedWord dst, int value) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(dst.address), "r"(value) : "memory");
}

// The number that the word holds.
__device__ __forceinline__ int fetch(SharedWord src) {
  int value;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(src.address) : "memory");
  return value;
}

}  // namespace cubridge
