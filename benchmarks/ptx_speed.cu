// Plain fp32 attention as it is written first: a thread a row, tiles of q, k, v and s in shared
// memory, a load of each operand. Blocks of 64 rows, tiles of 64 keys, D 128.
constexpr int kRows = 64, kKeys = 64, kD = 128;

extern "C" __global__ void plain(const float* q, const float* k, const float* v, float* o, int keys,
                                 float scale) {
  extern __shared__ float held[];
  float *sq = held, *sk = sq + kRows * kD, *sv = sk + kKeys * kD, *s = sv + kKeys * kD;
  const int t = threadIdx.x;
  q += blockIdx.x * kRows * kD;
  o += blockIdx.x * kRows * kD;
  for (int x = 0; x < kD; x++) {
    sq[t * kD + x] = q[t * kD + x];
    o[t * kD + x] = 0;
  }
  float most = -1e30f, sum = 0;
  for (int tile = 0; tile < keys / kKeys; tile++) {
    for (int x = 0; x < kD; x++) {
      sk[t * kD + x] = k[(tile * kKeys + t) * kD + x];
      sv[t * kD + x] = v[(tile * kKeys + t) * kD + x];
    }
    __syncthreads();
    float top = most;
    for (int j = 0; j < kKeys; j++) {
      float dot = 0;
      for (int x = 0; x < kD; x++) dot += sq[t * kD + x] * sk[j * kD + x];
      s[t * kKeys + j] = dot * scale;
      top = fmaxf(top, dot * scale);
    }
    const float shrink = exp2f(most - top);
    sum *= shrink;
    most = top;
    for (int j = 0; j < kKeys; j++) sum += s[t * kKeys + j] = exp2f(s[t * kKeys + j] - top);
    for (int x = 0; x < kD; x++) {
      float more = 0;
      for (int j = 0; j < kKeys; j++) more += s[t * kKeys + j] * sv[j * kD + x];
      o[t * kD + x] = o[t * kD + x] * shrink + more;
    }
    __syncthreads();
  }
  for (int x = 0; x < kD; x++) o[t * kD + x] /= sum;
}
