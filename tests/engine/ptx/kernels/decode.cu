// Decode of one query a head with a paged cache, in fp32: scores in shared memory, two passes.
// A block has four warps and one head; D is 64; pages hold 16 keys.
#include <cstdint>

constexpr int kD = 64, kPage = 16, kMost = 256;

extern "C" __global__ void __launch_bounds__(128)
decode_attention(const float* q, const float* k, const float* v, const int* pages, float* o,
                 int keys, float scale) {
  __shared__ float scores[kMost];
  __shared__ float query[kD];
  __shared__ float partial[4];
  __shared__ float parts[2 * kD];
  const int t = threadIdx.x, warp = t / 32, lane = t % 32, head = blockIdx.x;
  if (t < kD) query[t] = q[head * kD + t] * scale;
  __syncthreads();
  float most = -INFINITY;
  for (int j = t; j < keys; j += 128) {
    const float* key = k + (pages[j / kPage] * kPage + j % kPage) * kD;
    float s = 0;
    for (int d = 0; d < kD; d += 4) {
      float4 x = *reinterpret_cast<const float4*>(key + d);
      s += x.x * query[d] + x.y * query[d + 1] + x.z * query[d + 2] + x.w * query[d + 3];
    }
    scores[j] = s;
    most = fmaxf(most, s);
  }
  for (int m = 16; m; m /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, m));
  if (lane == 0) partial[warp] = most;
  __syncthreads();
  most = fmaxf(fmaxf(partial[0], partial[1]), fmaxf(partial[2], partial[3]));
  __syncthreads();
  float sum = 0;
  for (int j = t; j < keys; j += 128) {
    scores[j] = exp2f(scores[j] - most);
    sum += scores[j];
  }
  for (int m = 16; m; m /= 2) sum += __shfl_xor_sync(~0u, sum, m);
  if (lane == 0) partial[warp] = sum;
  __syncthreads();
  sum = partial[0] + partial[1] + partial[2] + partial[3];
  float out = 0;
  for (int j = t / kD; j < keys; j += 2)
    out += scores[j] * v[(pages[j / kPage] * kPage + j % kPage) * kD + t % kD];
  parts[t] = out;
  __syncthreads();
  if (t < kD) o[head * kD + t] = (parts[t] + parts[kD + t]) / sum;
}
