// One small kernel per primitive of sm90.cuh, each writing what the primitive did to plain row-major
// memory. sm90.py builds them for every shape and element type and compares with the op's meaning.
#include "cubridge/sm90.cuh"

using namespace cubridge;

// What a case is given: a 4-d source or destination tensor, where the box lies in it, plain arrays.
struct Case {
  TensorArg tensor;
  int extent[4];  // outermost first
  int corner[4];  // innermost first
  const void* a;
  const void* b;
  void* out;
  void* out2;
  int rows, columns;
  int r0, c0;
};

// Where element (r, c) of a swizzled tile lies, in bytes: written out here, from the definition of
// the 128-byte swizzle, so that the primitives are judged by other index code than their own.
template <typename T, int ROWS>
__device__ int swizzled(int r, int c) {
  const int panel = c / 64;
  const int unit = c % 64 / 8;
  return panel * ROWS * 128 + r * 128 + ((unit ^ (r % 8)) * 16) + c % 8 * 2;
}

__device__ unsigned char* aligned_shared() {
  extern __shared__ unsigned char raw[];
  const unsigned long long start = reinterpret_cast<unsigned long long>(raw);
  return raw + ((start + 1023) / 1024 * 1024 - start);
}

// ---- TMA ------------------------------------------------------------------------------------

template <typename T, int ROWS, int COLS>
__global__ void load_kernel(const Case c, const __grid_constant__ TensorMap map) {
  const auto tile = shared<T, ROWS, COLS>(0);
  const auto bar = mbarriers<1>(ROWS * COLS * sizeof(T));
  if (elect()) mbarrier_init(bar[0], 1);
  fence_barrier_init();
  sync();
  if (elect()) {
    prefetch_map(map);
    arrive_expect(bar[0], ROWS * COLS * sizeof(T));
    tma_load(tile, map, {c.corner[0], c.corner[1], c.corner[2], c.corner[3]}, bar[0]);
  }
  wait(bar[0], 0);
  for (int e = threadIdx.x; e < ROWS * COLS; e += blockDim.x) {
    static_cast<T*>(c.out)[e] = *reinterpret_cast<T*>(
        aligned_shared() + swizzled<T, ROWS>(e / COLS, e % COLS));
  }
}

template <typename T, int ROWS, int COLS>
__global__ void store_kernel(const Case c, const __grid_constant__ TensorMap map) {
  const auto tile = shared<T, ROWS, COLS>(0);
  for (int e = threadIdx.x; e < ROWS * COLS; e += blockDim.x) {
    *reinterpret_cast<T*>(aligned_shared() + swizzled<T, ROWS>(e / COLS, e % COLS)) =
        static_cast<const T*>(c.a)[e];
  }
  fence_async();
  sync();
  if (elect()) {
    tma_store(map, {c.corner[0], c.corner[1], c.corner[2], c.corner[3]}, tile);
    tma_commit();
    tma_wait<0>();
  }
}

// Of the box at `corner`, the tensor's rows in [r0, c0).
template <typename T, int ROWS, int COLS>
__global__ void rows_kernel(const Case c, const __grid_constant__ RowMap map) {
  const auto tile = shared<T, ROWS, COLS>(0);
  const auto bar = mbarriers<1>(ROWS * COLS * sizeof(T));
  if (elect()) mbarrier_init(bar[0], 1);
  fence_barrier_init();
  sync();
  if (elect()) {
    arrive_expect(bar[0], ROWS * COLS * sizeof(T));
    tma_load_rows(tile, map, {c.corner[0], c.corner[1], c.corner[2], c.corner[3]}, bar[0], c.r0, c.c0);
  }
  wait(bar[0], 0);
  for (int e = threadIdx.x; e < ROWS * COLS; e += blockDim.x) {
    static_cast<T*>(c.out)[e] = *reinterpret_cast<T*>(
        aligned_shared() + swizzled<T, ROWS>(e / COLS, e % COLS));
  }
}

// A ring of two stages: a loading warpgroup with few registers, two that take turns with many.
template <typename T, int ROWS, int COLS>
__global__ void __launch_bounds__(384, 1)
    ring_kernel(const Case c, const __grid_constant__ TensorMap map) {
  constexpr int BYTES = ROWS * COLS * sizeof(T);
  const auto tile = shared_stages<T, 2, ROWS, COLS>(0);
  const auto full = mbarriers<2>(2 * BYTES);
  const auto empty = mbarriers<2>(2 * BYTES + 16);
  const int wg = warpgroup_id();
  if (wg == 0) {
    if (elect()) {
      for (int s = 0; s < 2; ++s) {
        mbarrier_init(full[s], 1);
        mbarrier_init(empty[s], 2);
      }
    }
  }
  fence_barrier_init();
  sync();
  const int tiles = c.extent[1];  // one per head of the map
  if (wg == 0) {
    lower_registers<24>();
    if (elect()) {
      for (int n = 0; n < tiles; ++n) {
        wait(empty[n % 2], 1 - n / 2 % 2);
        arrive_expect(full[n % 2], BYTES);
        tma_load(tile[n % 2], map, {0, 0, n, 0}, full[n % 2]);
      }
    }
  } else {
    raise_registers<240>();
    if (wg == 2) named_arrive(1, 256);
    for (int n = 0; n < tiles; ++n) {
      wait(full[n % 2], n / 2 % 2);
      named_sync(wg, 256);
      // Each turn appends one to the list of who came: 1, 2, 1, 2, ...
      if (elect()) {
        int* turn = static_cast<int*>(c.out2);
        turn[1 + turn[0]] = wg;
        turn[0] = turn[0] + 1;
        __threadfence_block();
      }
      for (int e = threadIdx.x % 128 + (wg - 1) * 128; e < ROWS * COLS; e += 256) {
        static_cast<T*>(c.out)[static_cast<long long>(n) * ROWS * COLS + e] =
            *reinterpret_cast<T*>(aligned_shared() + n % 2 * BYTES +
                                  swizzled<T, ROWS>(e / COLS, e % COLS));
      }
      named_arrive(3 - wg, 256);
      named_sync(wg + 2, 128);  // every thread of this warpgroup has read the stage
      if (elect()) arrive(empty[n % 2]);
    }
  }
}

// ---- claimed work ---------------------------------------------------------------------------

// Each block claims `rows` numbers below `columns` from word r0 of the tensor [extent[0]]. A thread of
// the first warpgroup hands each on in one of two shared words, and every thread of the other two
// counts it in the ints at `out` [number, thread].
__global__ void __launch_bounds__(384, 1) claims_kernel(const Case c) {
  const auto words = gmem<int>(c.tensor, c.extent[0]);
  const auto full = mbarriers<2>(0);
  const auto empty = mbarriers<2>(16);
  const auto told = shared_words<2>(32);
  const int wg = warpgroup_id();
  if (wg == 0 && elect()) {
    for (int s = 0; s < 2; ++s) {
      mbarrier_init(full[s], 1);
      mbarrier_init(empty[s], 256);
    }
  }
  fence_barrier_init();
  sync();
  if (wg == 0) {
    if (elect()) {
      for (int turn = 0; turn < c.rows; ++turn) {
        const int number = claim(words.tile(c.r0), c.columns);
        wait(empty[turn % 2], 1 - turn / 2 % 2);
        post(told[turn % 2], number);
        arrive(full[turn % 2]);
      }
    }
  } else {
    for (int turn = 0; turn < c.rows; ++turn) {
      wait(full[turn % 2], turn / 2 % 2);
      const int number = fetch(told[turn % 2]);
      arrive(empty[turn % 2]);
      atomicAdd(static_cast<int*>(c.out) + number * 256 + threadIdx.x - 128, 1);
    }
  }
}

// ---- wgmma ----------------------------------------------------------------------------------

template <typename Layout>
__device__ Tile<Layout> from_plain(const float* plain, int columns) {
  return map(zeros<Layout>(), at(0, 0),
             [&](float, int i, int j) { return plain[i * columns + j]; });
}
template <typename Layout>
__device__ void to_plain(const Tile<Layout>& tile, float* plain, int columns) {
#pragma unroll
  for (int e = 0; e < Layout::SIZE; ++e) {
    plain[Layout::Rows::index(Layout::row_slot(e)) * columns +
          Layout::Cols::index(Layout::col_slot(e))] = tile.value[e];
  }
}

// A shared tile at a byte offset: its first columns from `from`, NaN in those that fill its last panel.
template <typename T, int ROWS, int COLS>
__device__ auto from_memory(int offset, const void* from) {
  constexpr int WHOLE = ceil_div(COLS, 64) * 64;
  for (int e = threadIdx.x; e < ROWS * WHOLE; e += blockDim.x) {
    const int row = e / WHOLE, column = e % WHOLE;
    *reinterpret_cast<T*>(aligned_shared() + offset + swizzled<T, ROWS>(row, column)) =
        column < COLS ? static_cast<const T*>(from)[row * COLS + column] : narrow<T>(NAN);
  }
  return shared<T, ROWS, WHOLE>(offset);
}
constexpr int panels(int columns) { return ceil_div(columns, 64) * 128; }  // bytes of a row

// out = a (64 x K) in f32, by accumulators of N columns; out2 = the shared tile that held a after the
// f32 at b was stored in it likewise. Each store comes before the load of the columns behind it.
template <typename T, int N, int K>
__global__ void panels_kernel(const Case c) {
  using Acc = WgmmaAcc<64, N>;
  const auto tile = from_memory<T, 64, K>(0, c.a);
  sync();
  for (int column = 0; column < K; column += N) {
    to_plain(load_shared<Acc>(tile, column), static_cast<float*>(c.out) + column, K);
    store_shared(tile, column, from_plain<Acc>(static_cast<const float*>(c.b) + column, K));
  }
  sync();
  for (int e = threadIdx.x; e < 64 * K; e += blockDim.x) {
    static_cast<T*>(c.out2)[e] =
        *reinterpret_cast<T*>(aligned_shared() + swizzled<T, 64>(e / K, e % K));
  }
}

// out = a b^T twice over, the first time into an accumulator that holds NaN: a (64 x K), b (N x K).
template <typename T, int N, int K>
__global__ void gemm_shared_kernel(const Case c) {
  const auto a = from_memory<T, 64, K>(0, c.a);
  const auto b = from_memory<T, N, K>(64 * panels(K), c.b);
  fence_async();
  sync();
  auto acc = fill<WgmmaAcc<64, N>>(NAN);
  mma_fence();
  gemm_async_init(acc, columns<K>(a), transpose(columns<K>(b)));
  gemm_async(acc, columns<K>(a), transpose(columns<K>(b)));
  mma_commit();
  mma_wait<0>();
  acc = map(acc, [&](float x) { return x; });
  to_plain(acc, static_cast<float*>(c.out), N);
}

// The same with a in registers, loaded from its shared tile.
template <typename T, int N, int K>
__global__ void gemm_loaded_kernel(const Case c) {
  const auto a = from_memory<T, 64, K>(0, c.a);
  const auto b = from_memory<T, N, K>(64 * panels(K), c.b);
  fence_async();
  sync();
  const auto q = load_operand(a);
  auto acc = fill<WgmmaAcc<64, N>>(NAN);
  mma_fence();
  gemm_async_init(acc, q, transpose(b));
  gemm_async(acc, q, transpose(b));
  mma_commit();
  mma_wait<0>();
  acc = map(acc, [&](float x) { return x; });
  to_plain(acc, static_cast<float*>(c.out), N);
}

// out = p b twice over: p (64 x K, f32, rounded to T in registers), b (K x N).
template <typename T, int N, int K>
__global__ void gemm_registers_kernel(const Case c) {
  const auto b = from_memory<T, K, N>(0, c.b);
  fence_async();
  sync();
  auto s = from_plain<WgmmaAcc<64, K>>(static_cast<const float*>(c.a), K);
  const auto p = to_operand<T>(s);
  auto acc = fill<WgmmaAcc<64, N>>(NAN);
  mma_fence();
  gemm_async_init(acc, p, columns<N>(b));
  mma_commit();
  gemm_async(acc, p, columns<N>(b));
  mma_commit();
  mma_wait<1>();
  mma_wait<0>();
  acc = map(acc, [&](float x) { return x; });
  to_plain(acc, static_cast<float*>(c.out), N);
}

// out = p b^T twice over: p (64 x K, f32, rounded to T in registers), b (N x K).
template <typename T, int N, int K>
__global__ void gemm_turned_kernel(const Case c) {
  const auto b = from_memory<T, N, K>(0, c.b);
  fence_async();
  sync();
  auto s = from_plain<WgmmaAcc<64, K>>(static_cast<const float*>(c.a), K);
  const auto p = to_operand<T>(s);
  auto acc = fill<WgmmaAcc<64, N>>(NAN);
  mma_fence();
  gemm_async_init(acc, p, transpose(columns<K>(b)));
  gemm_async(acc, p, transpose(columns<K>(b)));
  mma_commit();
  mma_wait<0>();
  acc = map(acc, [&](float x) { return x; });
  to_plain(acc, static_cast<float*>(c.out), N);
}

// ---- register tiles -------------------------------------------------------------------------

// From s (64 x N at rows r0.., columns c0.. of a tensor that keeps `columns` of it): out2 = per row [max with 0.25 of the row's
// own index, sum of the kept], out = s masked, plus row and column vectors loaded from memory.
template <typename T, int N>
__global__ void tile_kernel(const Case c) {
  using Acc = WgmmaAcc<64, N>;
  auto s = from_plain<Acc>(static_cast<const float*>(c.a), N);
  const TensorArg vector = {const_cast<void*>(c.b), {1, 0, 0, 0}};
  const auto V = gmem<float>(vector, c.extent[0]);
  const auto rows = load_rows<Acc>(V.tile(c.r0));
  const auto cols = load_cols<Acc>(V.tile(c.c0));
  s = map(s, rows, cols, at(c.r0, c.c0), [&](float x, float u, float v, int i, int j) { return x + u - v + 0.5f * static_cast<float>(i - j); });
  s = keep(s, at(c.r0, c.c0), [&](int i, int j) { return j <= i; });
  s = keep(s, rows, cols, rows, cols, rows, cols, at(c.r0, c.c0), [&](float u, float v, float u2, float v2, float u3, float v3, int i, int j) { return u + u2 + u3 >= v + v2 + v3 - 4.0f || i == j; });
  auto top = map(zeros<RowOf<Acc>>(), at(c.r0, 0), [&](float, int i) { return 0.25f * static_cast<float>(i); });
  top = row_max(s, top);
  auto kept = map(s, [&](float x) { return x == -INFINITY ? 0.0f : x; });
  auto sum = row_sum(kept, zeros<RowOf<Acc>>());
  sum = row_reduce(sum);
  const TensorArg result = {c.out2, {static_cast<long long>(c.extent[0]), 1, 0, 0}};
  const auto R = gmem<float>(result, 2, c.extent[0]);
  store_rows(R.tile(0, c.r0), top);
  store_rows(R.tile(1, c.r0), sum);
  const auto O = gmem<T>(c.tensor, c.extent[0], c.extent[1], c.rows, c.columns);
  store(O.tile(c.corner[0], c.corner[1], c.r0), kept);
}

// load_tile of a matrix (extent[0] x extent[1]) from row r0, column c0 on, as map and keep take it up;
// from column 0 on map takes load_output of it.
template <typename E, int N>
__global__ void dense_kernel(const Case c) {
  using Acc = WgmmaAcc<64, N>;
  const auto view = gmem<E>(c.tensor, c.extent[0], c.extent[1]);
  auto s = fill<Acc>(0.5f);
  const auto tile = load_tile<Acc>(view.tile(c.r0), c.c0);
  const auto add = [&](float x, auto y) { return x + y; };
  auto sum = c.c0 == 0 ? map(s, load_output<Acc>(view.tile(c.r0)), add) : map(s, tile, add);
  auto kept = keep(s, tile, at(c.r0, c.c0), [&](auto y, int i, int j) { return y > 0 && i != j; });
  to_plain(sum, static_cast<float*>(c.out), N);
  to_plain(kept, static_cast<float*>(c.out2), N);
}

// put_bits of whether the ints of a matrix (extent[0] x extent[1]) from (r0, c0) on are not 0, by each
// warp a quarter of the rows, to the words at b, and behind them the ends of what they keep.
template <int N>
__global__ void put_bits_kernel(const Case c) {
  const auto flags = gmem<int>(c.tensor, c.extent[0], c.extent[1]);
  const TensorArg vector = {const_cast<void*>(c.b), {1, 0, 0, 0}};
  const auto words = gmem<int>(vector, 4 * 64);
  const int row = threadIdx.x / 32 * 16;
  const auto ends = gmem<int>(vector, 4 * 64 + 2).tile(4 * 64);
  put_bits<16, N>(words.tile(4 * row), ends, at(c.r0 + row, c.c0),
                  [&](int i, int j) { return flags(i, j) != 0; });
}

// keep_bits of a tile of 0.5 by the words at b, and (out2) by those from row 24 on, of which the last 24
// rows lie past the vector's end. A kernel of its own: load_bits reads what an earlier one wrote.
template <int N>
__global__ void keep_bits_kernel(const Case c) {
  using Acc = WgmmaAcc<64, N>;
  const auto words = gmem<int>(TensorArg{const_cast<void*>(c.b), {1, 0, 0, 0}}, 4 * 64);
  const auto kept = keep_bits(fill<Acc>(0.5f), load_bits<Acc>(words.tile(0)));
  to_plain(kept, static_cast<float*>(c.out), N);
  const auto below = keep_bits(fill<Acc>(0.5f), load_bits<Acc>(words.tile(4 * 24)));
  to_plain(below, static_cast<float*>(c.out2), N);
}

// ---- entry points ---------------------------------------------------------------------------

template <auto Kernel, int THREADS>
int go(int bytes, const Case& c, int blocks = 1) {
  cudaError_t status =
      cudaFuncSetAttribute(Kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (status != cudaSuccess) return status;
  Kernel<<<blocks, THREADS, bytes>>>(c);
  status = cudaGetLastError();
  return status != cudaSuccess ? status : cudaDeviceSynchronize();
}

template <auto Kernel, typename T, int ROWS, int COLS>
int with_map(int threads, int stages, const Case& c) {
  const auto map = tensor_map<T, ROWS, COLS>(c.tensor, c.extent[0], c.extent[1], c.extent[2],
                                             c.extent[3]);
  const cudaError_t status = run<Kernel>(
      dim3(1), threads, 1024 + stages * ROWS * COLS * static_cast<int>(sizeof(T)) + 64, 0, c, map);
  return status != cudaSuccess ? status : cudaDeviceSynchronize();
}

template <typename T, int ROWS, int COLS>
int load(const Case& c) {
  return with_map<load_kernel<T, ROWS, COLS>, T, ROWS, COLS>(128, 1, c);
}
template <typename T, int ROWS, int COLS>
int store_box(const Case& c) {
  return with_map<store_kernel<T, ROWS, COLS>, T, ROWS, COLS>(128, 1, c);
}
template <typename T, int ROWS, int COLS>
int load_rows(const Case& c) {
  const auto map = row_map<T, ROWS, COLS>(c.tensor, c.extent[0], c.extent[1], c.extent[2], c.extent[3]);
  const cudaError_t status = run<rows_kernel<T, ROWS, COLS>>(
      dim3(1), 128, 1024 + ROWS * COLS * static_cast<int>(sizeof(T)) + 64, 0, c, map);
  return status != cudaSuccess ? status : cudaDeviceSynchronize();
}
template <typename T, int ROWS, int COLS>
int ring(const Case& c) {
  return with_map<ring_kernel<T, ROWS, COLS>, T, ROWS, COLS>(384, 2, c);
}
template <typename T, int N, int K>
int gemm_shared(const Case& c) {
  return go<gemm_shared_kernel<T, N, K>, 128>(1024 + (64 + N) * panels(K), c);
}
template <typename T, int N, int K>
int panels_of(const Case& c) {
  return go<panels_kernel<T, N, K>, 128>(1024 + 64 * panels(K), c);
}
template <typename T, int N, int K>
int gemm_loaded(const Case& c) {
  return go<gemm_loaded_kernel<T, N, K>, 128>(1024 + (64 + N) * panels(K), c);
}
template <typename T, int N, int K>
int gemm_registers(const Case& c) {
  return go<gemm_registers_kernel<T, N, K>, 128>(1024 + K * panels(N), c);
}
template <typename T, int N, int K>
int gemm_turned(const Case& c) {
  return go<gemm_turned_kernel<T, N, K>, 128>(1024 + N * panels(K), c);
}
template <typename T, int N, int UNUSED>
int tile(const Case& c) {
  return go<tile_kernel<T, N>, 128>(1024, c);
}
template <typename E, int N, int UNUSED>
int dense(const Case& c) {
  return go<dense_kernel<E, N>, 128>(1024, c);
}
// What a launcher asks, to the ints at `out` in host memory: multiprocessors, the limit of shared
// memory, rows / columns rounded up; to those at `out2`, the first two as the CUDA runtime says them.
template <typename T, int UNUSED, int UNUSED_TOO>
int host(const Case& c) {
  int* out = static_cast<int*>(c.out);
  int* wanted = static_cast<int*>(c.out2);
  out[0] = sm_count();
  out[1] = shared_limit();
  out[2] = ceil_div(c.rows, c.columns);
  int device = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status != cudaSuccess) return status;
  status = cudaDeviceGetAttribute(&wanted[0], cudaDevAttrMultiProcessorCount, device);
  if (status != cudaSuccess) return status;
  return cudaDeviceGetAttribute(&wanted[1], cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
}
template <typename T, int N, int UNUSED>
int bits(const Case& c) {
  const int status = go<put_bits_kernel<N>, 128>(1024, c);
  return status ? status : go<keep_bits_kernel<N>, 128>(1024, c);
}
template <typename T, int BLOCKS, int UNUSED>
int claims(const Case& c) {
  return go<claims_kernel, 384>(1024 + 64, c, BLOCKS);
}
