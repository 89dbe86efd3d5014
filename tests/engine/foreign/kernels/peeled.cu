// Causal attention, tiles of keys from the last to the first: those that the diagonal or the last key
// may cross in a loop of their own, whole ones in another. A warp has 8 rows, four lanes each.
constexpr int kRows = 8, kKeys = 16, kD = 16;

struct Larger {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};
struct Added {
  __device__ float operator()(float a, float b) const { return a + b; }
};
// What the four lanes of a row have, together: their maximum in each tile, their sum at the end.
template <class Op> __device__ __forceinline__ void meet(float& to, float from, Op op) {
  from = op(from, __shfl_xor_sync(~0u, from, 1));
  to = op(from, __shfl_xor_sync(~0u, from, 2));
}
__device__ __forceinline__ void product(float (&s)[4], const float* q, const float* k, int left) {
  for (int e = 0; e < 4; e++) {
    s[e] = 0;
    for (int d = 0; d < kD && e < left; d++) s[e] += q[d] * k[e * kD + d];
  }
}
struct Softmax {
  float most = -INFINITY, sum = 0;
  __device__ __forceinline__ void step(float (&s)[4], float (&out)[kD], const float* v, int left,
                                       float scale) {
    float before = most;
    meet(most, fmaxf(most, fmaxf(fmaxf(s[0], s[1]), fmaxf(s[2], s[3]))), Larger());
    float shrink = __expf((before - most) * scale);
    for (int e = 0; e < 4; e++) s[e] = __expf((s[e] - most) * scale);
    sum = sum * shrink + s[0] + s[1] + s[2] + s[3];
    for (int d = 0; d < kD; d++) {
      out[d] *= shrink;
      for (int e = 0; e < 4 && e < left; e++) out[d] += s[e] * v[e * kD + d];
    }
  }
  __device__ __forceinline__ void end(float (&out)[kD], float* o, bool inside) {
    meet(sum, sum, Added());
    float all = sum;
    for (int d = 0; d < kD; d++) {
      float x = out[d];
      x += __shfl_xor_sync(~0u, x, 1);
      x += __shfl_xor_sync(~0u, x, 2);
      if (inside && threadIdx.x % 4 == 0) o[d] = x / all;
    }
  }
};

__global__ void attend(const float* q, const float* k, const float* v, float* o, int rows, int keys,
                       float scale) {
  const int row = blockIdx.x * kRows + threadIdx.x / 4, column = threadIdx.x % 4 * 4;
  const int head = blockIdx.z * gridDim.y + blockIdx.y;
  q += (head * rows + min(row, rows - 1)) * kD, o += (head * rows + row) * kD;
  k += head * keys * kD, v += head * keys * kD;
  const int shift = keys - rows;
  float out[kD] = {};
  Softmax softmax;
  int tile = (min((blockIdx.x + 1) * kRows, rows) + shift + kKeys - 1) / kKeys - 1;
  constexpr int kMasked = 2;
  for (int step = 0; step < kMasked; ++step, --tile) {
    const int key = tile * kKeys + column;
    float s[4];
    product(s, q, k + key * kD, keys - key);
    for (int e = 0; e < 4; e++) if (key + e > row + shift || key + e >= keys) s[e] = -INFINITY;
    softmax.step(s, out, v + key * kD, keys - key, scale);
    if (tile <= 0) { --tile; break; }
  }
  for (; tile >= 0; --tile) {
    float s[4];
    product(s, q, k + (tile * kKeys + column) * kD, 4);
    softmax.step(s, out, v + (tile * kKeys + column) * kD, 4, scale);
  }
  softmax.end(out, o, row < rows);
}

void launch(const float* q, const float* k, const float* v, float* o, int B, int Hq, int Nq, int Nk,
            float scale) {
  attend<<<dim3((Nq + kRows - 1) / kRows, Hq, B), 32>>>(q, k, v, o, Nq, Nk, scale);
}
