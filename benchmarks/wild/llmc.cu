// llm.c's causal attention kernels in fp32 on packed qkv, (B, N, 3, H, D): KERNEL is 1 (three plain
// kernels) or 0 (one fused kernel of warps).
#include "attention_forward.cu"

#ifndef KERNEL
#define KERNEL 1
#endif

void launch(const float* q, const float* k, const float* v, float* o, int B, int N, int Hq, int D) {
  const int C = Hq * D;
  const size_t row = sizeof(float) * C;
  float *packed, *scores, *weights;
  cudaMalloc(&packed, 3 * row * B * N);
  cudaMalloc(&scores, sizeof(float) * B * Hq * N * N);
  cudaMalloc(&weights, sizeof(float) * B * Hq * N * N);
  const float* parts[] = {q, k, v};
  for (int part = 0; part < 3; part++)
    cudaMemcpy2D(packed + part * C, 3 * row, parts[part], row, row, B * N,
                 cudaMemcpyDeviceToDevice);
  const int threads = 128;
  if (KERNEL == 1) attention_forward1(o, scores, weights, packed, B, N, C, Hq, threads);
  else
    attention_forward_fused1<<<dim3(ceil_div(N, threads / 32), Hq, B), threads>>>(
        o, scores, weights, packed, B, N, C, Hq);
}
