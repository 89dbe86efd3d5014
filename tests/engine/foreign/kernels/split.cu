// split-KV: partial results, the last block of a row (an atomic counter) combines
constexpr int D = 32;
__global__ void __launch_bounds__(32) attend(const float* q, const float* k, const float* v, float* o, float* part, float2* ml, unsigned* count, int N, int S, float scale) {
  int row = blockIdx.x, split = blockIdx.y, d = threadIdx.x;
  int h = row / N;
  int each = (N + S - 1) / S, from = split * each, to = min(N, from + each);
  float x = q[row * D + d], m = -INFINITY, l = 0, acc = 0;
  for (int j = from; j < to; j++) {
    float s = x * k[(h * N + j) * D + d];
    for (int n = 16; n; n /= 2) s += __shfl_xor_sync(~0u, s, n);
    s *= scale;
    float high = fmaxf(m, s), c = __expf(m - high), p = __expf(s - high);
    m = high; l = l * c + p; acc = acc * c + p * v[(h * N + j) * D + d];
  }
  part[(row * S + split) * D + d] = acc;
  if (d == 0) ml[row * S + split] = make_float2(m, l);
  __threadfence();
  __syncwarp();
  unsigned old = 0;
  if (d == 0) old = atomicAdd(count + row, 1);
  old = __shfl_sync(~0u, old, 0);
  if (old != S - 1) return;
  __threadfence();
  float M = -INFINITY, L = 0, A = 0;
  for (int n = 0; n < S; n++) M = fmaxf(M, __ldcg(&ml[row * S + n].x));
  for (int n = 0; n < S; n++) {
    float c = __expf(__ldcg(&ml[row * S + n].x) - M);
    L += c * __ldcg(&ml[row * S + n].y); A += c * __ldcg(&part[(row * S + n) * D + d]);
  }
  o[row * D + d] = A / L;
}
void launch(const float* q, const float* k, const float* v, float* o, int B, int Hq, int N, float scale) {
  float* part; float2* ml; unsigned* count; int rows = B * Hq * N, S = 3;
  cudaMalloc(&part, rows * S * D * 4); cudaMalloc(&ml, rows * S * 8); cudaMalloc(&count, rows * 4);
  cudaMemset(count, 0, rows * 4);
  attend<<<dim3(rows, S), 32>>>(q, k, v, o, part, ml, count, N, S, scale);
  cudaFree(part); cudaFree(ml); cudaFree(count);
}
