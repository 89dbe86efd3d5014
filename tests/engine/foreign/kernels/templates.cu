// Attention with templates of C++20: concepts, a class as a template's value, a lambda with a
// template's parameters, designated initialisers. A block has one row; D is 32.
#include <concepts>
#include <cstdint>
#include <cuda_bf16.h>
#include <type_traits>

template <class T>
concept Element = requires(T x) {
  { static_cast<float>(x) } -> std::same_as<float>;
};
struct Tiles {
  int keys, width;
  constexpr bool operator==(const Tiles&) const = default;
};

template <Element T, Tiles kTiles>
  requires(kTiles.keys % 16 == 0)
__global__ void attention(const T* q, const T* k, const T* v, T* o, int N, float scale) {
  __shared__ float weights[kTiles.keys];
  const int t = threadIdx.x, i = blockIdx.x, head = blockIdx.y;
  q += (head * N + i) * kTiles.width, o += (head * N + i) * kTiles.width;
  k += head * N * kTiles.width, v += head * N * kTiles.width;
  auto each = [&]<int... kAt>(std::integer_sequence<int, kAt...>, const T* row) {
    return ((static_cast<float>(q[kAt]) * static_cast<float>(row[kAt])) + ...);
  };
  float most = -INFINITY, sum = 0, out = 0;
  for (int first = 0; first < N; first += kTiles.keys) {
    const int here = min(kTiles.keys, N - first);
    for (int j = t; j < here; j += blockDim.x)
      weights[j] = scale * each(std::make_integer_sequence<int, kTiles.width>{},
                                k + (first + j) * kTiles.width);
    __syncthreads();
    float high = most;
    for (int j = 0; j < here; j++) high = fmaxf(high, weights[j]);
    const float shrink = __expf(most - high);
    sum *= shrink, out *= shrink, most = high;
    for (int j = 0; j < here; j++) {
      const float p = __expf(weights[j] - most);
      sum += p;
      out += p * static_cast<float>(v[(first + j) * kTiles.width + t]);
    }
    __syncthreads();
  }
  if constexpr (std::same_as<T, float>) o[t] = out / sum;
  else o[t] = __float2bfloat16(out / sum);
}

void launch(const __nv_bfloat16* q, const __nv_bfloat16* k, const __nv_bfloat16* v,
            __nv_bfloat16* o, int B, int Hq, int N, float scale) {
  constexpr Tiles tiles{.keys = 16, .width = 32};
  attention<__nv_bfloat16, tiles><<<dim3(N, B * Hq), tiles.width>>>(q, k, v, o, N, scale);
}
