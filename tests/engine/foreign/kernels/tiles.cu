// Causal attention with tiles of registers that are class objects of packed pairs, passed from
// function to function. A warp has 16 rows, kWarps of them a block; keys in tiles of 16; D is 32.
#include <cstdint>

constexpr int kWarps = 1, kRows = 16 * kWarps, kD = 32;

struct Pair { float x, y; };
template <int N> struct Tile { Pair data[N][2]; };        // columns of 8, rows 8 apart
template <int N> struct Halves { uint32_t data[N][2]; };  // the same, two bf16 in a register
struct Column { Pair data; };                             // a number of each of two rows

__device__ __forceinline__ uint32_t both(const uint16_t* p) {
  return *reinterpret_cast<const uint32_t*>(p);
}
__device__ __forceinline__ void mma(Pair (&d)[2], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                    uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
               "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0].x), "+f"(d[0].y), "+f"(d[1].x), "+f"(d[1].y)
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void product(Tile<2>& out, const uint16_t* a, const uint16_t* b) {
  const int row = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
#pragma unroll
  for (int n = 0; n < 2; n++) {
#pragma unroll
    for (int c = 0; c < kD; c += 16) {
      const uint16_t *low = a + row * kD + c + column, *high = low + 8 * kD;
      const uint16_t* other = b + (n * 8 + row) * kD + c + column;
      mma(out.data[n], both(low), both(high), both(low + 8), both(high + 8), both(other),
          both(other + 8));
    }
  }
}
__device__ __forceinline__ void product(Tile<4>& out, const Halves<2>& a, const uint16_t* b) {
  const int row = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
#pragma unroll
  for (int n = 0; n < 4; n++) {
    const uint16_t* at = b + column * kD + n * 8 + row;
    mma(out.data[n], a.data[0][0], a.data[0][1], a.data[1][0], a.data[1][1],
        at[0] | at[kD] << 16, at[8 * kD] | at[9 * kD] << 16);
  }
}
__device__ __forceinline__ float largest(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}
__device__ __forceinline__ float total(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}
template <int N> __device__ __forceinline__ void scaled(Tile<N>& tile, const Column& by) {
#pragma unroll
  for (int n = 0; n < N; n++) {
    tile.data[n][0].x *= by.data.x, tile.data[n][0].y *= by.data.x;
    tile.data[n][1].x *= by.data.y, tile.data[n][1].y *= by.data.y;
  }
}
__device__ __forceinline__ void diagonal(Tile<2>& tile, int first) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int n = 0; n < 2; n++)
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int ahead = first + n * 8 + lane % 4 * 2 - lane / 4 - r * 8;
      if (ahead > 0) tile.data[n][r].x = -INFINITY;
      if (ahead + 1 > 0) tile.data[n][r].y = -INFINITY;
    }
}
__device__ __forceinline__ void maxima(Column& out, const Tile<2>& of) {
  const auto& t = of.data;
  out.data.x = largest(fmaxf(out.data.x, fmaxf(fmaxf(t[0][0].x, t[0][0].y), fmaxf(t[1][0].x, t[1][0].y))));
  out.data.y = largest(fmaxf(out.data.y, fmaxf(fmaxf(t[0][1].x, t[0][1].y), fmaxf(t[1][1].x, t[1][1].y))));
}
__device__ __forceinline__ void exponentials(Tile<2>& tile, const Column& most, float scale) {
#pragma unroll
  for (int n = 0; n < 2; n++) {
    Pair(&t)[2] = tile.data[n];
    t[0].x = exp2f((t[0].x - most.data.x) * scale), t[0].y = exp2f((t[0].y - most.data.x) * scale);
    t[1].x = exp2f((t[1].x - most.data.y) * scale), t[1].y = exp2f((t[1].y - most.data.y) * scale);
  }
}
__device__ __forceinline__ void packed(Halves<2>& out, const Tile<2>& of) {
#pragma unroll
  for (int n = 0; n < 2; n++)
#pragma unroll
    for (int r = 0; r < 2; r++)
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;"
          : "=r"(out.data[n][r]) : "f"(of.data[n][r].y), "f"(of.data[n][r].x));
}

__global__ void attend(const uint16_t* q, const uint16_t* k, const uint16_t* v, float* o, int length,
                       float scale) {
  __shared__ __align__(16) uint16_t sq[kRows * kD], sk[16 * kD], sv[16 * kD];
  const int warp = threadIdx.x / 32;
  const int begin = blockIdx.x * kRows;
  const int base = (blockIdx.z * gridDim.y + blockIdx.y) * length;
  for (int i = threadIdx.x; i < kRows * kD; i += 32 * kWarps) sq[i] = q[(base + begin) * kD + i];
  Tile<4> out{};
  Column most{{-INFINITY, -INFINITY}}, sum{};
  const int last = (begin + kRows) / 16;
  for (int tile = 0; tile < last; ++tile) {
    __syncthreads();
    for (int i = threadIdx.x; i < 16 * kD; i += 32 * kWarps) {
      sk[i] = k[(base + tile * 16) * kD + i];
      sv[i] = v[(base + tile * 16) * kD + i];
    }
    __syncthreads();
    Tile<2> block{};
    product(block, sq + warp * 16 * kD, sk);
    Column before = most;
    if (tile * 16 >= begin) {
      diagonal(block, tile * 16 - begin - warp * 16);
    }
    maxima(most, block);
    exponentials(block, most, scale);
    Column shrink{{exp2f((before.data.x - most.data.x) * scale),
                   exp2f((before.data.y - most.data.y) * scale)}};
    const auto& t = block.data;
    sum.data.x = sum.data.x * shrink.data.x + total(t[0][0].x + t[0][0].y + t[1][0].x + t[1][0].y);
    sum.data.y = sum.data.y * shrink.data.y + total(t[0][1].x + t[0][1].y + t[1][1].x + t[1][1].y);
    scaled(out, shrink);
    Halves<2> weights;
    packed(weights, block);
    product(out, weights, sv);
  }
  Column inverse{{1 / sum.data.x, 1 / sum.data.y}};
  scaled(out, inverse);
  float* at = o + (base + begin + warp * 16 + threadIdx.x % 32 / 4) * kD + threadIdx.x % 4 * 2;
#pragma unroll
  for (int n = 0; n < 4; n++) {
    at[n * 8] = out.data[n][0].x, at[n * 8 + 1] = out.data[n][0].y;
    at[n * 8 + 8 * kD] = out.data[n][1].x, at[n * 8 + 8 * kD + 1] = out.data[n][1].y;
  }
}

void launch(const void* q, const void* k, const void* v, float* o, int B, int Hq, int N, float scale) {
  auto half = [](const void* p) { return static_cast<const uint16_t*>(p); };
  attend<<<dim3(N / kRows, Hq, B), 32 * kWarps>>>(half(q), half(k), half(v), o, N,
                                                  scale * 1.44269504f);
}
