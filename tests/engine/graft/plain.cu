// Attention as plain threads have it: one row each, tiles of keys in shared memory.
#include <cuda_runtime.h>

constexpr int kTile = 16;

__global__ void attention(const float* q, const float* k, const float* v, float* o, int heads,
                          int length, int D, float scale) {
  extern __shared__ float tiles[];
  float* keys = tiles;
  float* values = tiles + kTile * D;
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  int head = blockIdx.y, batch = blockIdx.z;
  size_t base = (size_t)(batch * heads + head) * length * D;
  const float* mine = q + base + (size_t)row * D;
  float* out = o + base + (size_t)row * D;
  for (int d = 0; d < D; d++) out[d] = 0.0f;
  float m = -INFINITY, l = 0.0f;
  for (int first = 0; first < length; first += kTile) {
    for (int at = threadIdx.x; at < kTile * D; at += blockDim.x) {
      keys[at] = k[base + (size_t)first * D + at];
      values[at] = v[base + (size_t)first * D + at];
    }
    __syncthreads();
    float s[kTile], top = m;
    for (int n = 0; n < kTile; n++) {
      float dot = 0.0f;
      for (int d = 0; d < D; d++) dot += mine[d] * keys[n * D + d];
      dot *= scale;
      s[n] = dot;
      top = fmaxf(top, dot);
    }
    float alpha = __expf(m - top);
    m = top;
    l *= alpha;
    for (int d = 0; d < D; d++) out[d] *= alpha;
    for (int n = 0; n < kTile; n++) {
      float p = __expf(s[n] - m);
      l += p;
      for (int d = 0; d < D; d++) out[d] += p * values[n * D + d];
    }
    __syncthreads();
  }
  for (int d = 0; d < D; d++) out[d] /= l;
}

void launch(const float* q, const float* k, const float* v, float* o, int B, int Hq, int N, int D,
            float scale, cudaStream_t stream) {
  dim3 grid(N / 32, Hq, B);
  attention<<<grid, 32, 2 * kTile * D * sizeof(float), stream>>>(q, k, v, o, Hq, N, D, scale);
}
