// A thread for each row, tiles of 32 keys: causal, aligned at the ends, rows without keys are 0.
#include <cuda_runtime.h>

constexpr int ROWS = 16, KEYS = 32, D = 8;

__global__ void attention(const float* q, const float* k, const float* v, float* o, float* lse,
                          int heads, int heads_kv, int len_q, int len_k, float scale) {
  const int row = blockIdx.x * ROWS + threadIdx.x, head = blockIdx.y, batch = blockIdx.z;
  const int shift = len_k - len_q;
  const int shared_head = batch * heads_kv + head / (heads / heads_kv);
  const int end = min(len_k, (int)(blockIdx.x + 1) * ROWS + shift);
  if (row >= len_q) return;
  const size_t at = (size_t)(batch * heads + head) * len_q + row;
  float top = -INFINITY, sum = 0, out[D] = {};
  for (int first = 0; first < end; first += KEYS) {
    float scores[KEYS], most = top;
    for (int n = 0; n < KEYS; n++) {
      const int key = first + n;
      scores[n] = -INFINITY;
      if (key < len_k && key <= row + shift) {
        float dot = 0;
        for (int d = 0; d < D; d++) dot += q[at * D + d] * k[((size_t)shared_head * len_k + key) * D + d];
        scores[n] = dot * scale;
      }
      most = fmaxf(most, scores[n]);
    }
    const float safe = most == -INFINITY ? 0 : most;
    const float again = __expf(top - safe);
    top = most;
    sum *= again;
    for (int d = 0; d < D; d++) out[d] *= again;
    for (int n = 0; n < KEYS; n++) {
      const float weight = __expf(scores[n] - safe);
      sum += weight;
      if (first + n < len_k)
        for (int d = 0; d < D; d++)
          out[d] += weight * v[((size_t)shared_head * len_k + first + n) * D + d];
    }
  }
  const float share = sum > 0 ? 1 / sum : 0;
  for (int d = 0; d < D; d++) o[at * D + d] = out[d] * share;
  lse[at] = sum > 0 ? top + __logf(sum) : -INFINITY;
}

void launch(const float* q, const float* k, const float* v, float* o, float* lse, int batch,
            int heads, int heads_kv, int len_q, int len_k, float scale) {
  const dim3 grid((len_q + ROWS - 1) / ROWS, heads, batch);
  attention<<<grid, ROWS>>>(q, k, v, o, lse, heads, heads_kv, len_q, len_k, scale);
}
