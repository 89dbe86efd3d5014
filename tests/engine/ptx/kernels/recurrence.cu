// Linear attention: the state of one head is carried from chunk to chunk in shared memory.
// A block has 64 threads and one head; D is 16; chunks of 16 positions.
#include <cstdint>

constexpr int kD = 16, kChunk = 16;

extern "C" __global__ void __launch_bounds__(64)
recurrence(const float* q, const float* k, const float* v, float* o, int length, float decay) {
  __shared__ float sq[kChunk * kD], sk[kChunk * kD], sv[kChunk * kD];
  __shared__ float state[kD * kD];
  const int t = threadIdx.x, head = blockIdx.x;
  const float* base[3] = {q, k, v};
  float* held[3] = {sq, sk, sv};
  for (int i = t; i < kD * kD; i += 64) state[i] = 0.f;
  for (int start = 0; start < length; start += kChunk) {
    int here = min(kChunk, length - start);
#pragma unroll
    for (int x = 0; x < 3; x++)
      for (int i = t; i < here * kD; i += 64)
        held[x][i] = base[x][(head * length + start) * kD + i];
    __syncthreads();
    for (int p = 0; p < here; p++) {
      for (int i = t; i < kD * kD; i += 64)
        state[i] = state[i] * decay + sk[p * kD + i / kD] * sv[p * kD + i % kD];
      __syncthreads();
      if (t < kD) {
        float sum = 0;
        for (int d = 0; d < kD; d++) sum += sq[p * kD + d] * state[d * kD + t];
        o[(head * length + start + p) * kD + t] = sum;
      }
      __syncthreads();
    }
  }
}
