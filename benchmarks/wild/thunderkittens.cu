// ThunderKittens' forward kernel for Hopper: rows in blocks of 192, head sizes 64 and 128. It writes
// -8 log2 of the row's sum, scaled as its backward pass has it, which is no LSE: not compared.
#include "mha_h100.cu"

#include <cstdio>

#ifndef CAUSAL
#define CAUSAL true
#endif

template <int Width>
void launch_width(bf16* q, bf16* k, bf16* v, bf16* o, unsigned B, unsigned Hq, unsigned Hkv,
                  unsigned N, cudaStream_t stream) {
  using Globals = fwd_globals<Width>;
  float* sums;
  cudaMallocAsync(&sums, sizeof(float) * B * Hq * N, stream);
  typename Globals::q_gl q_layout{q, B, Hq, N, Width};
  typename Globals::k_gl k_layout{k, B, Hkv, N, Width};
  typename Globals::v_gl v_layout{v, B, Hkv, N, Width};
  typename Globals::l_gl l_layout{sums, B, Hq, 1U, N};
  typename Globals::o_gl o_layout{o, B, Hq, N, Width};
  Globals globals{q_layout, k_layout, v_layout, l_layout, o_layout, int(N), int(Hq / Hkv)};
  auto kernel = fwd_attend_ker<Width, CAUSAL>;
  constexpr int kShared = kittens::MAX_SHARED_MEMORY - 1024;  // the kernel has variables of its own
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
  dim3 grid(N / (CONSUMER_WARPGROUPS * 64), Hq, B);
  kernel<<<grid, 32 * NUM_WORKERS, kShared, stream>>>(globals);
  cudaFreeAsync(sums, stream);
}

void launch(void* q, void* k, void* v, void* o, int B, int Hq, int Hkv, int N, int D,
            cudaStream_t stream) {
  auto at = [](void* p) { return static_cast<bf16*>(p); };
  if (N % (CONSUMER_WARPGROUPS * 64)) {
    fprintf(stderr, "N must be a multiple of %d\n", CONSUMER_WARPGROUPS * 64);
    exit(1);
  }
  if (D == 64) launch_width<64>(at(q), at(k), at(v), at(o), B, Hq, Hkv, N, stream);
  else launch_width<128>(at(q), at(k), at(v), at(o), B, Hq, Hkv, N, stream);
}
