// Attention of one head with 8-bit integers: q and k are quantised row by row, scores are s8 matmuls
// (m16n8k32), v stays in f32. A warp has 16 rows; D is 32; keys in whole tiles of 8.
#include <cstdint>

namespace {
constexpr int kD = 32;

__device__ __forceinline__ uint32_t pack(const float* x, float scale) {
  uint32_t out = 0;
#pragma unroll
  for (int n = 0; n < 4; n++) {
    int8_t one = static_cast<int8_t>(__float2int_rn(x[n] / scale));
    out |= static_cast<uint32_t>(static_cast<uint8_t>(one)) << 8 * n;
  }
  return out;
}
__device__ __forceinline__ float scale_of(const float* row) {
  float most = 1e-6f;
  for (int d = 0; d < kD; d++) most = fmaxf(most, fabsf(row[d]));
  return most / 127.f;
}
__device__ __forceinline__ void mma(int (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, "
               "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
}  // namespace

__global__ void __launch_bounds__(32)
int8_attention(const float* q, const float* k, const float* v, float* o, int N, float scale) {
  extern __shared__ float scores[];  // [16, N]
  const int lane = threadIdx.x, row = lane / 4, first = blockIdx.x * 16;
  q += (blockIdx.y * N + first) * kD, o += (blockIdx.y * N + first) * kD;
  k += blockIdx.y * N * kD, v += blockIdx.y * N * kD;
  const float* mine[2] = {q + row * kD, q + (row + 8) * kD};
  const float each[2] = {scale_of(mine[0]), scale_of(mine[1])};
  uint32_t a[4];
#pragma unroll
  for (int n = 0; n < 4; n++) a[n] = pack(mine[n % 2] + lane % 4 * 4 + n / 2 * 16, each[n % 2]);
  for (int tile = 0; tile < N; tile += 8) {
    const float* key = k + (tile + row) * kD;
    const float own = scale_of(key);
    uint32_t b[2] = {pack(key + lane % 4 * 4, own), pack(key + lane % 4 * 4 + 16, own)};
    int s[4] = {};
    mma(s, a, b);
#pragma unroll
    for (int n = 0; n < 4; n++) {
      const int column = lane % 4 * 2 + n % 2;
      const float other = __shfl_sync(~0u, own, column * 4);
      scores[(row + n / 2 * 8) * N + tile + column] = s[n] * each[n / 2] * other * scale;
    }
  }
  __syncwarp();
  if (lane >= 16) return;
  float most = -INFINITY, sum = 0, out[kD] = {};
  for (int j = 0; j < N; j++) most = fmaxf(most, scores[lane * N + j]);
  for (int j = 0; j < N; j++) {
    const float p = __expf(scores[lane * N + j] - most);
    sum += p;
#pragma unroll
    for (int d = 0; d < kD; d++) out[d] += p * v[j * kD + d];
  }
#pragma unroll
  for (int d = 0; d < kD; d++) o[lane * kD + d] = out[d] / sum;
}

void launch(const float* q, const float* k, const float* v, float* o, int B, int Hq, int N,
            float scale) {
  int8_attention<<<dim3(N / 16, B * Hq), 32, 16 * N * sizeof(float)>>>(q, k, v, o, N, scale);
}
