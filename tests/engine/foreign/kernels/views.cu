// Attention of a warpgroup whose scores lambdas and a view name while wgmma still makes them: an
// address of them in memory would have it write them there before it is waited for. A block has 64
// rows, D is 16, tiles of 8 keys; lengths are whole tiles.
#include <cuda_bf16.h>
#include <cstdint>

constexpr int kRows = 64, kKeys = 8, kD = 16;

struct View {
  float* at;
  __device__ __forceinline__ float& operator()(int row, int key) const { return at[2 * row + key]; }
};

// Matrices of 8 rows of 16 bytes, those of the first 8 columns before the others.
template <int Rows>
__device__ __forceinline__ uint64_t load(__nv_bfloat16* to, const __nv_bfloat16* from) {
  for (int n = threadIdx.x; n < Rows * kD; n += blockDim.x)
    to[(n % kD / 8 * Rows + n / kD) * 8 + n % 8] = from[n];
  return uint64_t(__cvta_generic_to_shared(to) >> 4) | uint64_t(Rows) << 16 | 8ull << 32;
}

__global__ void attend(const __nv_bfloat16* q, const __nv_bfloat16* k, const __nv_bfloat16* v,
                       float* o, int N, float scale) {
  __shared__ alignas(128) __nv_bfloat16 sq[kRows * kD], sk[kKeys * kD];
  const int head = blockIdx.z * gridDim.y + blockIdx.y;
  const int row = blockIdx.x * kRows + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
  k += head * N * kD, v += head * N * kD;
  const uint64_t queries = load<kRows>(sq, q + (head * N + blockIdx.x * kRows) * kD);
  float out[2][kD] = {}, most[2] = {-INFINITY, -INFINITY}, sum[2] = {};
  auto scaled = [&](auto& s) {
    for (float& x : s) x *= scale;
  };
  auto step = [&](int tile, auto then) {
    const int key = tile * kKeys + threadIdx.x % 4 * 2;
    float s[4];
    View view{s};
    __syncthreads();
    const uint64_t keys = load<kKeys>(sk, k + tile * kKeys * kD);
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, "
                 "0, 1, 1, 0, 0;" : "=f"(s[0]), "=f"(s[1]), "=f"(s[2]), "=f"(s[3])
                 : "l"(queries), "l"(keys));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;"
                 : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3])::"memory");
    then(s);
    for (int r = 0; r < 2; r++) {
      float high = fmaxf(most[r], fmaxf(view(r, 0), view(r, 1)));
      for (int by = 1; by < 4; by *= 2) high = fmaxf(high, __shfl_xor_sync(~0u, high, by));
      const float shrink = __expf(most[r] - high);
      most[r] = high, sum[r] *= shrink;
      for (float& x : out[r]) x *= shrink;
      for (int c = 0; c < 2; c++) {
        const float p = __expf(view(r, c) - high);
        sum[r] += p;
        for (int d = 0; d < kD; d++) out[r][d] += p * __bfloat162float(v[(key + c) * kD + d]);
      }
    }
  };
  for (int tile = 0; tile < N / kKeys; tile++) step(tile, scaled);
  auto met = [](float x) {
    for (int by = 1; by < 4; by *= 2) x += __shfl_xor_sync(~0u, x, by);
    return x;
  };
  for (int r = 0; r < 2; r++) {
    const float all = met(sum[r]);
    for (int d = 0; d < kD; d++) {
      const float x = met(out[r][d]);
      if (threadIdx.x % 4 == 0) o[(head * N + row + 8 * r) * kD + d] = x / all;
    }
  }
}

void launch(const __nv_bfloat16* q, const __nv_bfloat16* k, const __nv_bfloat16* v, float* o, int B,
            int Hq, int N, float scale) {
  attend<<<dim3(N / kRows, Hq, B), 128>>>(q, k, v, o, N, scale);
}
