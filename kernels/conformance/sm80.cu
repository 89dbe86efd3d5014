// One kernel per primitive of sm80.cuh and what it builds on: the primitive alone, its inputs read
// and its results written element by element. sm80.py instantiates them, runs them and says what
// each must give. The checks' own reads and writes use no primitive but the scalar load of a view
// (which has its own case) and the coordinates of a layout (which the gemm cases pin down).
#include "cubridge/sm80.cuh"

using namespace cubridge;

struct Case {
  TensorArg t[6];
  int n[8];
};

template <auto Kernel>
int start(const Case& c, int threads, int bytes, int blocks) {
  return static_cast<int>(run<Kernel>(dim3(blocks), threads, bytes, nullptr, c));
}

// out[k, i, j] = tile(i, j), for any element type.
template <typename L, typename E>
__device__ void dump(const TensorArg& out, int k, const Tile<L, E>& tile) {
  for (int e = 0; e < L::SIZE; ++e) {
    const int i = RowOf<L>::index(L::row_slot(e));
    const int j = ColOf<L>::index(L::col_slot(e));
    static_cast<float*>(out.data)[k * out.stride[0] + i * out.stride[1] + j] =
        static_cast<float>(tile.value[e]);
  }
}

// out[k, lane of the quad, i] = rows(i): every lane's own copy, so that a lane without it shows.
template <typename L, typename E>
__device__ void dump_rows(const TensorArg& out, int k, const Tile<L, E>& rows) {
  for (int slot = 0; slot < L::SIZE; ++slot) {
    static_cast<float*>(out.data)[k * out.stride[0] + threadIdx.x % 4 * out.stride[1] +
                                  L::index(slot)] = static_cast<float>(rows.value[slot]);
  }
}

// out[k, thread / 4, j] = cols(j).
template <typename L, typename E>
__device__ void dump_cols(const TensorArg& out, int k, const Tile<L, E>& cols) {
  for (int slot = 0; slot < L::SIZE; ++slot) {
    static_cast<float*>(out.data)[k * out.stride[0] + threadIdx.x / 4 * out.stride[1] +
                                  L::index(slot)] = static_cast<float>(cols.value[slot]);
  }
}

template <typename L>
__device__ Tile<L> read(const TensorArg& from) {
  Tile<L> tile;
  for (int e = 0; e < L::SIZE; ++e) {
    tile.value[e] = static_cast<float*>(
        from.data)[RowOf<L>::index(L::row_slot(e)) * from.stride[0] + ColOf<L>::index(L::col_slot(e))];
  }
  return tile;
}

// copy_async, commit_async, wait_async, sync: t[0] [n0, COLS] from row n1 on -> the raw bytes of
// shared memory in t[1], poisoned beforehand.
template <typename T, int ROWS, int COLS>
__global__ void copy_in(const __grid_constant__ Case c) {
  const auto tile = shared<T, ROWS, COLS>(0);
  for (int i = threadIdx.x; i < ROWS * COLS / 8; i += blockDim.x) {
    detail::store_chunk(shared_base() + i * 16, make_uint4(~0u, ~0u, ~0u, ~0u));
  }
  sync();
  copy_async(tile, gmem<T>(c.t[0], c.n[0], COLS).tile(c.n[1]));
  commit_async();
  wait_async<0>();
  sync();
  for (int i = threadIdx.x; i < ROWS * COLS / 8; i += blockDim.x) {
    static_cast<uint4*>(c.t[1].data)[i] = detail::load_chunk(shared_base() + i * 16);
  }
}

// copy_async_rows: t[0] [n0, COLS] from row n1 on, of which rows [n2, n3) are taken -> the raw bytes of
// shared memory in t[1], poisoned beforehand.
template <typename T, int ROWS, int COLS>
__global__ void copy_in_rows(const __grid_constant__ Case c) {
  const auto tile = shared<T, ROWS, COLS>(0);
  for (int i = threadIdx.x; i < ROWS * COLS / 8; i += blockDim.x) {
    detail::store_chunk(shared_base() + i * 16, make_uint4(~0u, ~0u, ~0u, ~0u));
  }
  sync();
  copy_async_rows(tile, gmem<T>(c.t[0], c.n[0], COLS).tile(c.n[1]), c.n[2], c.n[3]);
  commit_async();
  wait_async<0>();
  sync();
  for (int i = threadIdx.x; i < ROWS * COLS / 8; i += blockDim.x) {
    static_cast<uint4*>(c.t[1].data)[i] = detail::load_chunk(shared_base() + i * 16);
  }
}

// A ring of three stages over seven tiles, at most one group in flight when a tile is read.
template <typename T, int ROWS, int COLS>
__global__ void copy_ring(const __grid_constant__ Case c) {
  const auto src = gmem<T>(c.t[0], c.n[0], COLS);
  const auto ring = shared_stages<T, 3, ROWS, COLS>(0);
  const int tiles = ceil_div(c.n[0], ROWS);
  for (int stage = 0; stage < 2; ++stage) {
    copy_async(ring[stage], src.tile(stage * ROWS));
    commit_async();
  }
  for (int step = 0; step < tiles; ++step) {
    wait_async<1>();
    sync();
    for (int i = threadIdx.x; i < ROWS * COLS / 8; i += blockDim.x) {
      static_cast<uint4*>(c.t[1].data)[step * (ROWS * COLS / 8) + i] =
          detail::load_chunk(ring[step % 3].base + i * 16);
    }
    copy_async(ring[(step + 2) % 3], src.tile((step + 2) * ROWS));
    commit_async();
  }
  wait_async<0>();
}

// gemm onto an accumulator that holds t[3]: t[2] = t[3] + a b. FORM bit 0: b as it lies (K x N), not
// transposed (N x K). FORM bit 1: a in registers, through to_operand, not in shared memory.
template <typename T, int M, int N, int K, int WARPS, int FORM>
__global__ void matmul(const __grid_constant__ Case c) {
  constexpr int B_ROWS = FORM & 1 ? K : N;
  constexpr int B_COLS = FORM & 1 ? N : K;
  const auto b = shared<T, B_ROWS, B_COLS>(0);
  copy_async(b, gmem<T>(c.t[1], B_ROWS, B_COLS).tile(0));
  auto acc = read<MmaAcc<M, N, WARPS>>(c.t[3]);
  const auto multiply = [&](const auto& a) {
    commit_async();
    wait_async<0>();
    sync();
    if constexpr (FORM & 1) {
      gemm(acc, a, b);
    } else {
      gemm(acc, a, transpose(b));
    }
  };
  if constexpr (FORM & 2) {
    const auto a = gmem<T>(c.t[0], M, K);
    Tile<MmaAcc<M, K, WARPS>> values;
    for (int e = 0; e < MmaAcc<M, K, WARPS>::SIZE; ++e) {
      using A = MmaAcc<M, K, WARPS>;
      values.value[e] = a(A::Rows::index(A::row_slot(e)), A::Cols::index(A::col_slot(e)));
    }
    multiply(to_operand<T>(values));
  } else {
    const auto a = shared<T, M, K>(B_ROWS * B_COLS * sizeof(T));
    copy_async(a, gmem<T>(c.t[0], M, K).tile(0));
    multiply(a);
  }
  dump(c.t[2], 0, acc);
}

// store, then copy: t[0] float [M, N] -> t[1] [n0, N] from row n1 on.
template <typename T, int M, int N, int WARPS>
__global__ void copy_out(const __grid_constant__ Case c) {
  const auto tile = shared<T, M, N>(0);
  store(tile, read<MmaAcc<M, N, WARPS>>(c.t[0]));
  sync();
  copy(gmem<T>(c.t[1], c.n[0], N).tile(c.n[1]), tile);
}

// load_rows and load_cols of t[0] [n0] from element n1 on; store_rows of the rows to t[3].
template <typename E, int M, int N, int WARPS>
__global__ void vectors(const __grid_constant__ Case c) {
  using L = MmaAcc<M, N, WARPS>;
  const auto view = gmem<E>(c.t[0], c.n[0]);
  const auto rows = load_rows<L>(view.tile(c.n[1]));
  const auto cols = load_cols<L>(view.tile(c.n[1]));
  dump_rows(c.t[1], 0, rows);
  dump_cols(c.t[2], 0, cols);
  if constexpr (std::is_same_v<E, f16> || std::is_same_v<E, bf16> || std::is_same_v<E, float>) {
    store_rows(gmem<E>(c.t[3], c.n[0]).tile(c.n[1]), rows);
  }
}

// load_tile of t[0] [n0, n1] at row n2, column n3, as map and keep take it up: t[1] [2, M, N]; from column
// 0 on map takes load_output of it.
template <typename E, int M, int N, int WARPS>
__global__ void dense(const __grid_constant__ Case c) {
  using L = MmaAcc<M, N, WARPS>;
  const auto view = gmem<E>(c.t[0], c.n[0], c.n[1]);
  const auto s = fill<L>(0.5f);
  const auto tile = load_tile<L>(view.tile(c.n[2]), c.n[3]);
  const auto add = [&](float x, auto y) { return x + y; };
  dump(c.t[1], 0, c.n[3] == 0 ? map(s, load_output<L>(view.tile(c.n[2])), add) : map(s, tile, add));
  dump(c.t[1], 1, keep(s, tile, at(c.n[2], c.n[3]), [&](auto y, int i, int j) {
         return y > 0 && i != j;
       }));
}

// load_lines of t[0] [n0, N] at row n1, turned by n2: t[3] [3, 16, N] as it is, with what maps of row
// values (t[1]), column values (t[2]), sums and maxima make of it, and with neighbours exchanged; and
// stored to t[4] [n0, N].
template <typename E, int N>
__global__ void lines(const __grid_constant__ Case c) {
  using L = Lines<16, N, 4>;
  const auto view = gmem<E>(c.t[0], c.n[0], N);
  const auto x = load_lines<L>(view.tile(c.n[1]), c.n[2]);
  const auto r = load_rows<L>(gmem<float>(c.t[1], c.n[0]).tile(c.n[1]));
  const auto u = load_cols<L>(gmem<float>(c.t[2], N).tile(0));
  const auto total = row_reduce(row_sum(x, zeros<RowOf<L>>()));
  const auto top = row_max(x, fill<RowOf<L>>(-1.0f));
  const auto whole = map(total, top, [&](float sum, float most) { return sum + 100.0f * most; });
  const auto out = gmem<float>(c.t[3], 3, 16, N);
  store(out.tile(0, 0), x);
  store(out.tile(2, 0), map(swap_neighbours(x), swap_neighbours(u),
                            [&](float e, float b) { return 10.0f * e + b; }));
  store(out.tile(1, 0), map(x, r, u, whole, at(c.n[1], 0),
                            [&](float e, float a, float b, float w, int i, int j) {
                              return i == j ? 0.5f : e * a + b + w;
                            }));
  store(gmem<E>(c.t[4], c.n[0], N).tile(c.n[1]), x);
}

// zeros, fill, map and keep in all their forms: s = t[0] [M, N], rows r = t[1], columns u = t[2]
// (integers), origin (n0, n1); results in t[3] [16, M, N] and t[4] [4, quad lane or thread / 4, ..].
template <int M, int N, int WARPS>
__global__ void maps(const __grid_constant__ Case c) {
  using L = MmaAcc<M, N, WARPS>;
  const auto s = read<L>(c.t[0]);
  const auto r = load_rows<L>(gmem<float>(c.t[1], M).tile(0));
  const auto u = load_cols<L>(gmem<int>(c.t[2], N).tile(0));
  const At origin = at(c.n[0], c.n[1]);
  const TensorArg& out = c.t[3];
  dump(out, 0, zeros<L>());
  dump(out, 1, fill<L>(-INFINITY));
  dump(out, 2, map(s, [&](float x) { return 2.0f * x + 1.0f; }));
  dump(out, 3, map(s, r, [&](float x, float a) { return x * a; }));
  dump(out, 4, map(s, u, [&](float x, int b) { return x - b; }));
  dump(out, 5, map(s, u, r, [&](float x, int b, float a) { return x * a + b; }));
  dump(out, 6, map(s, origin, [&](float x, int i, int j) { return x + i * 1000 - j; }));
  dump(out, 7, map(s, r, origin, [&](float x, float a, int i, int j) { return x * a + i - j; }));
  dump(out, 8, map(s, r, u, origin, [&](float x, float a, int b, int i, int j) {
         return x * a + b + i * j;
       }));
  dump(out, 9, map(s, s, [&](float x, float y) { return x * y; }));
  dump(out, 10, keep(s, origin, [&](int i, int j) { return j <= i + 3; }));
  dump(out, 11, keep(s, u, origin, [&](int b, int i, int j) { return b > 0 && i != j; }));
  dump(out, 12, keep(s, r, u, origin, [&](float a, int b, int i, int j) { return a > b || i == j; }));
  dump(out, 13, keep(s, r, u, s, u, r, u, origin,
                     [&](float a, int b, float x, int d, float e, int f, int i, int j) {
                       return a + e + x >= b + d + f || i == j;
                     }));
  dump(out, 14, map(s, r, u, s, r, origin,
                    [&](float x, float a, int b, float y, float d, int i, int j) {
                      return x * a + b - y + d + i - j;
                    }));
  dump(out, 15, map(s, r, u, s, r, [&](float x, float a, int b, float y, float d) {
         return x * a + b - y + d;
       }));
  dump_rows(c.t[4], 0, map(r, [&](float a) { return a == 0.0f ? -1.0f : 1.0f / a; }));
  dump_rows(c.t[4], 1, map(r, r, [&](float a, float b) { return a - 2.0f * b; }));
  dump_rows(c.t[4], 2, map(r, origin, [&](float a, int i) { return a + i; }));
  dump_cols(c.t[4], 3, map(u, origin, [&](int b, int j) { return b * j; }));
}

// row_max, row_sum and row_reduce of t[0] [M, N] with the previous values t[1]: t[2] [3, 4, M] holds
// the maxima, the sums, and the partial sums.
template <int M, int N, int WARPS>
__global__ void reductions(const __grid_constant__ Case c) {
  using L = MmaAcc<M, N, WARPS>;
  const auto s = read<L>(c.t[0]);
  const auto previous = load_rows<L>(gmem<float>(c.t[1], M).tile(0));
  dump_rows(c.t[2], 0, row_max(s, previous));
  auto l = row_sum(s, fill<RowOf<L>>(1.0f));
  dump_rows(c.t[2], 2, l);
  l = map(l, previous, [&](float x, float a) { return isinf(a) ? x : x * a; });
  dump_rows(c.t[2], 1, row_reduce(row_sum(s, l)));
}

// A view's scalar load at the indices t[1] [n5, RANK]; the shape is n0 .. n3.
template <typename E, int RANK>
__global__ void loads(const __grid_constant__ Case c) {
  const int* index = static_cast<const int*>(c.t[1].data);
  float* out = static_cast<float*>(c.t[2].data);
  for (int i = threadIdx.x; i < c.n[5]; i += blockDim.x) {
    const int* at = index + i * RANK;
    if constexpr (RANK == 1) {
      out[i] = gmem<E>(c.t[0], c.n[0])(at[0]);
    } else if constexpr (RANK == 2) {
      out[i] = gmem<E>(c.t[0], c.n[0], c.n[1])(at[0], at[1]);
    } else if constexpr (RANK == 3) {
      out[i] = gmem<E>(c.t[0], c.n[0], c.n[1], c.n[2])(at[0], at[1], at[2]);
    } else {
      out[i] = gmem<E>(c.t[0], c.n[0], c.n[1], c.n[2], c.n[3])(at[0], at[1], at[2], at[3]);
    }
  }
}

// class_of the flags t[0] [n0, n1] from (n2, n3) on, as every lane has it, in t[1].
template <int R, int C>
__global__ void classes(const __grid_constant__ Case c) {
  const auto flags = gmem<int>(c.t[0], c.n[0], c.n[1]);
  const int kind = class_of<R, C>(at(c.n[2], c.n[3]), [&](int i, int j) { return flags(i, j) != 0; });
  static_cast<float*>(c.t[1].data)[threadIdx.x] = static_cast<float>(kind);
}

// put_bits of the flags t[0] [n0, n1] from (n2, n3) on to the vector t[1] [n4] from element n5 on, by
// each warp a share of the rows, and the ends of what they keep to t[5] [2]; in a later launch (n6)
// keep_bits of the tile t[2] by them -> t[3], and by what lies past the vector's end -> t[4]: load_bits
// reads what an earlier kernel wrote.
template <typename L, int R, int C>
__global__ void bits(const __grid_constant__ Case c) {
  const auto flags = gmem<int>(c.t[0], c.n[0], c.n[1]);
  const auto words = gmem<int>(c.t[1], c.n[4]);
  if (c.n[6] == 0) {
    constexpr int SHARE = R / 4;
    const int row = threadIdx.x / 32 * SHARE;
    put_bits<SHARE, C>(words.tile(c.n[5] + 4 * row), gmem<int>(c.t[5], 2).tile(0),
                       at(c.n[2] + row, c.n[3]),
                       [&](int i, int j) { return flags(i, j) != 0; });
    return;
  }
  const auto scores = read<L>(c.t[2]);
  dump(c.t[3], 0, keep_bits(scores, load_bits<L>(words.tile(c.n[5]))));
  dump(c.t[4], 0, keep_bits(scores, load_bits<L>(words.tile(c.n[4]))));
}

// least and greatest of t[0] [n0] from n1 on, as every lane has them, in t[1] [2, threads].
template <int N>
__global__ void extremes(const __grid_constant__ Case c) {
  const auto values = gmem<int>(c.t[0], c.n[0]);
  const int low = least<N>(at(c.n[1]), [&](int i) { return values(i); });
  const int high = greatest<N>(at(c.n[1]), [&](int i) { return values(i); });
  static_cast<int*>(c.t[1].data)[threadIdx.x] = low;
  static_cast<int*>(c.t[1].data)[blockDim.x + threadIdx.x] = high;
}

// compact of t[0] [n0] from n1 on, n2 of them, to the vector t[1] [n3] from element 1 on, and put of
// their number to its element 0; the number as every lane has it in t[2]. put outside writes nothing.
__global__ void lists(const __grid_constant__ Case c) {
  const auto values = gmem<int>(c.t[0], c.n[0]);
  const auto out = gmem<int>(c.t[1], c.n[3]);
  const int found = compact(out.tile(1), c.n[2], at(c.n[1]), [&](int i) { return values(i); });
  put(out.tile(0), found);
  put(out.tile(c.n[3]), -7);
  put(out.tile(-1), -7);
  static_cast<int*>(c.t[2].data)[threadIdx.x] = found;
}

// Each block claims n2 numbers below n3 from word n1 of t[0] [n0], and tells each to all of its threads
// in one of two shared words: thread i counts number k in t[1] [k, i].
__global__ void claims(const __grid_constant__ Case c) {
  const auto words = gmem<int>(c.t[0], c.n[0]);
  const auto told = shared_words<2>(16);
  for (int turn = 0; turn < c.n[2]; ++turn) {
    if (threadIdx.x == 0) post(told[turn % 2], claim(words.tile(c.n[1]), c.n[3]));
    sync();
    const int number = fetch(told[turn % 2]);
    atomicAdd(static_cast<int*>(c.t[1].data) + number * c.t[1].stride[0] + threadIdx.x, 1);
  }
}

// Scalar function n0 of t[0] [n1] (and of t[1], where it takes two).
__global__ void scalars(const __grid_constant__ Case c) {
  const float* in = static_cast<const float*>(c.t[0].data);
  const float* second = static_cast<const float*>(c.t[1].data);
  float* out = static_cast<float*>(c.t[2].data);
  for (int i = threadIdx.x; i < c.n[1]; i += blockDim.x) {
    const float x = in[i];
    const float y = second[i];
    switch (c.n[0]) {
      case 0: out[i] = exp2_approx(x); break;
      case 1: out[i] = log2_approx(x); break;
      case 2: out[i] = rcp_approx(x); break;
      case 3: out[i] = tanh_approx(x); break;
      case 4: out[i] = sigmoid(x); break;
      case 5: out[i] = sigmoid_approx(x); break;
      case 6: out[i] = exp(x); break;
      case 7: out[i] = exp2(x); break;
      case 8: out[i] = log(x); break;
      case 9: out[i] = log2(x); break;
      case 10: out[i] = tanh(x); break;
      case 11: out[i] = sqrt(x); break;
      case 12: out[i] = rsqrt(x); break;
      case 13: out[i] = sin(x); break;
      case 14: out[i] = cos(x); break;
      case 15: out[i] = floor(x); break;
      case 16: out[i] = ceil(x); break;
      case 17: out[i] = abs(x); break;
      case 18: out[i] = min(x, y); break;
      case 19: out[i] = max(x, y); break;
      case 20: out[i] = fma(x, y, 1.0f); break;
      case 21: out[i] = floor_div(static_cast<int>(x), static_cast<int>(y)); break;
      case 22: out[i] = floor_mod(static_cast<int>(x), static_cast<int>(y)); break;
      case 23: out[i] = __half2float(narrow<f16>(x)); break;
      case 24: out[i] = __bfloat162float(narrow<bf16>(x)); break;
      case 25: out[i] = erf(x); break;
    }
  }
}
