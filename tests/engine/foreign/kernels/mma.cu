// Attention with raw mma, keys shared by heads: cp.async into two stages, accumulators in register
// arrays. Blocks of 64 rows, four warps of 16; D is 64, keys in tiles of 32; lengths end anywhere.
#include <cstdint>

namespace {
constexpr int kD = 64, kRows = 64, kKeys = 32, kPad = 8, kStride = kD + kPad;

__device__ __forceinline__ uint32_t at(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
__device__ __forceinline__ void copy16(void* to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at(to)), "l"(from), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void ldmatrix4(uint32_t (&r)[4], const void* p) {
  asm volatile("ldmatrix.sync.aligned.x4.m8n8.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at(p)) : "memory");
}
__device__ __forceinline__ void ldmatrix2t(uint32_t (&r)[2], const void* p) {
  asm volatile("ldmatrix.sync.aligned.x2.trans.m8n8.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1]) : "r"(at(p)) : "memory");
}
__device__ __forceinline__ void ldmatrix2(uint32_t (&r)[2], const void* p) {
  asm volatile("ldmatrix.sync.aligned.x2.m8n8.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1]) : "r"(at(p)) : "memory");
}
__device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
               "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ uint32_t pack(float low, float high) {
  uint32_t out;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
}
}  // namespace

__global__ void __launch_bounds__(128)
mma_attention(const uint16_t* q, const uint16_t* k, const uint16_t* v, float* o, int rows, int keys,
              int heads, int sharing, float scale) {
  __shared__ __align__(16) uint16_t sq[kRows * kStride];
  __shared__ __align__(16) uint16_t sk[2][kKeys * kStride];
  __shared__ __align__(16) uint16_t sv[2][kKeys * kStride];
  const int head = blockIdx.y, batch = blockIdx.z;
  q += (batch * heads + head) * rows * kD;
  o += (batch * heads + head) * rows * kD;
  k += (batch * (heads / sharing) + head / sharing) * keys * kD;
  v += (batch * (heads / sharing) + head / sharing) * keys * kD;
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  const int first = blockIdx.x * kRows;
  const int tiles = (keys + kKeys - 1) / kKeys;
  auto load = [&](int tile) {
    for (int i = t; i < kKeys * kD / 8; i += 128) {
      int row = i / (kD / 8), column = i % (kD / 8) * 8, key = tile * kKeys + row;
      int bytes = key < keys ? 16 : 0;
      int place = key < keys ? key : 0;
      copy16(&sk[tile & 1][row * kStride + column], k + place * kD + column, bytes);
      copy16(&sv[tile & 1][row * kStride + column], v + place * kD + column, bytes);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  for (int i = t; i < kRows * kD / 8; i += 128) {
    int row = i / (kD / 8), column = i % (kD / 8) * 8;
    int place = first + row < rows ? first + row : 0;
    copy16(&sq[row * kStride + column], q + place * kD + column, first + row < rows ? 16 : 0);
  }
  load(0);
  float out[8][4] = {};
  float most[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
  for (int tile = 0; tile < tiles; tile++) {
    if (tile + 1 < tiles) {
      load(tile + 1);
      asm volatile("cp.async.wait_group 1;" ::: "memory");
    } else {
      asm volatile("cp.async.wait_group 0;" ::: "memory");
    }
    __syncthreads();
    float s[4][4] = {};
#pragma unroll
    for (int c = 0; c < kD; c += 16) {
      uint32_t a[4];
      ldmatrix4(a, &sq[(warp * 16 + lane % 16) * kStride + c + lane / 16 * 8]);
#pragma unroll
      for (int n = 0; n < 4; n++) {
        uint32_t b[2];
        ldmatrix2(b, &sk[tile & 1][(n * 8 + lane % 8) * kStride + c + lane / 8 % 2 * 8]);
        mma(s[n], a, b);
      }
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
      float high = most[r];
#pragma unroll
      for (int n = 0; n < 4; n++)
        for (int j = 0; j < 2; j++) {
          int key = tile * kKeys + n * 8 + lane % 4 * 2 + j;
          s[n][2 * r + j] = key < keys ? s[n][2 * r + j] * scale : -INFINITY;
          high = fmaxf(high, s[n][2 * r + j]);
        }
      high = fmaxf(high, __shfl_xor_sync(~0u, high, 1));
      high = fmaxf(high, __shfl_xor_sync(~0u, high, 2));
      float shrink = exp2f(most[r] - high);
      most[r] = high;
      sum[r] *= shrink;
#pragma unroll
      for (int n = 0; n < 4; n++)
        for (int j = 0; j < 2; j++) sum[r] += s[n][2 * r + j] = exp2f(s[n][2 * r + j] - high);
#pragma unroll
      for (int n = 0; n < 8; n++)
        for (int j = 0; j < 2; j++) out[n][2 * r + j] *= shrink;
    }
#pragma unroll
    for (int c = 0; c < 2; c++) {
      uint32_t a[4] = {pack(s[2 * c][0], s[2 * c][1]), pack(s[2 * c][2], s[2 * c][3]),
                       pack(s[2 * c + 1][0], s[2 * c + 1][1]), pack(s[2 * c + 1][2], s[2 * c + 1][3])};
#pragma unroll
      for (int n = 0; n < 8; n++) {
        uint32_t b[2];
        ldmatrix2t(b, &sv[tile & 1][(c * 16 + lane % 16) * kStride + n * 8]);
        mma(out[n], a, b);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < 2; r++) {
    sum[r] += __shfl_xor_sync(~0u, sum[r], 1);
    sum[r] += __shfl_xor_sync(~0u, sum[r], 2);
    int row = first + warp * 16 + lane / 4 + 8 * r;
    if (row < rows)
#pragma unroll
      for (int n = 0; n < 8; n++)
        for (int j = 0; j < 2; j++)
          o[row * kD + n * 8 + lane % 4 * 2 + j] = out[n][2 * r + j] / sum[r];
  }
}

void launch(const void* q, const void* k, const void* v, float* o, int B, int Hq, int Hkv, int Nq,
            int Nk, float scale) {
  auto half = [](const void* p) { return static_cast<const uint16_t*>(p); };
  mma_attention<<<dim3((Nq + kRows - 1) / kRows, Hq, B), 128>>>(
      half(q), half(k), half(v), o, Nq, Nk, Hq, Hq / Hkv, scale * 1.44269504f);
}
