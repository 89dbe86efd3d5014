// Whole rows of a tensor in registers: what happens to q or k before they are multiplied. A few lanes
// hold a row, eight neighbouring columns each, so that memory is read and written 16 bytes at a time,
// and a row's sum takes a few shuffles.
#pragma once

#include "dense.cuh"
#include "gmem.cuh"
#include "layout.cuh"
#include "scalar.cuh"

namespace cubridge {

// The lanes that hold a row of N columns; those past its end hold nothing.
template <int N>
constexpr int LINE_LANES = N > 128 ? 32 : N > 64 ? 16 : 8;

// Warp w has the rows w * M / WARPS and on, 32 / LANES of them at a time.
template <int M, int WARPS, int LANES>
struct LineRows {
  static constexpr Axis AXIS = Axis::ROW;
  static constexpr int SIZE = M / WARPS * LANES / 32;

  __device__ static __forceinline__ int index(int slot) {
    return static_cast<int>(threadIdx.x) / 32 * (M / WARPS) + slot * (32 / LANES) +
           static_cast<int>(threadIdx.x) % 32 / LANES;
  }
};
template <int N>
struct LineCols {
  static constexpr Axis AXIS = Axis::COL;
  static constexpr int SIZE = 8;

  __device__ static __forceinline__ int index(int slot) {
    return static_cast<int>(threadIdx.x) % LINE_LANES<N> * 8 + slot;
  }
};
template <int M, int N, int WARPS>
struct Lines {
  static_assert(N % 8 == 0 && N <= 256, "eight columns to a lane, a row to at most 32 lanes");
  static_assert(M % (4 * WARPS) == 0, "a warp has four rows at least");
  using Rows = LineRows<M, WARPS, LINE_LANES<N>>;
  using Cols = LineCols<N>;
  static constexpr int SIZE = Rows::SIZE * 8;

  __device__ static constexpr int row_slot(int e) { return e / 8; }
  __device__ static constexpr int col_slot(int e) { return e % 8; }
};

namespace detail {

// Whether this lane's columns of a row of N are there: all eight of them, or none.
template <int N>
__device__ __forceinline__ bool in_line() {
  return N == LINE_LANES<N> * 8 || LineCols<N>::index(0) < N;
}

template <typename L>
struct IsLines;
template <int M, int N, int WARPS>
struct IsLines<Lines<M, N, WARPS>> {
  static constexpr int COLS = N;
};

}  // namespace detail

// Lines on their way: every access has started, the rows come into registers as they lie in memory.
template <typename Layout, typename T>
struct LinesOnTheirWay {
  static constexpr int WORDS = 2 * sizeof(T);  // of a slot's eight elements
  unsigned word[RowOf<Layout>::SIZE * WORDS];
};

namespace detail {

// Widened where an operation takes them up: 16-bit elements wait in half the registers, and the
// compiler must not know that those of lines for all heads are the same in every round.
template <typename Layout, typename T>
__device__ __forceinline__ Tile<Layout> taken(const LinesOnTheirWay<Layout, T>& lines) {
  Tile<Layout> result;
#pragma unroll
  for (int e = 0; e < Layout::SIZE; e += 2) {
    if constexpr (sizeof(T) == 4) {
      result.value[e] = __uint_as_float(lines.word[e]);
      result.value[e + 1] = __uint_as_float(lines.word[e + 1]);
    } else {
      unsigned word = lines.word[e / 2];
      asm volatile("" : "+r"(word));
      result.value[e] = unpack<T>(word, 0);
      result.value[e + 1] = unpack<T>(word, 1);
    }
  }
  return result;
}

}  // namespace detail

// The tile's rows, turned left by `turn` columns: column `turn` of the tensor comes first, and its
// first column after its last. 16 bytes in one access where rows and `turn` allow it, else element
// by element; absent rows are 0. The tensor is not written while the kernel runs. One branch for all
// of a thread's accesses: each with its own would wait for the one before.
template <typename Layout, typename T>
__device__ __forceinline__ LinesOnTheirWay<Layout, T> load_lines(const GmemTile<T>& tile, int turn) {
  static_assert(sizeof(T) == 2 || std::is_same_v<T, float>, "lines are of floats");
  constexpr int N = detail::IsLines<Layout>::COLS;
  constexpr int PER = 16 / sizeof(T);
  constexpr int WORDS = LinesOnTheirWay<Layout, T>::WORDS;
  const bool there = detail::in_line<N>();
  int first = turn + LineCols<N>::index(0);
  LinesOnTheirWay<Layout, T> result;
  if (tile.vectors & (turn % PER == 0)) {
#pragma unroll
    for (int slot = 0; slot < RowOf<Layout>::SIZE; ++slot) {
      const int row = RowOf<Layout>::index(slot);
      const bool inside = there & tile.has(row);
#pragma unroll
      for (int w = 0; w < WORDS; w += 4) {
        const int at = (first + w / 4 * PER) % tile.columns;
        uint4 bits;
        detail::load_bits(bits, tile.row(row) + at, inside);
        unsigned* word = result.word + slot * WORDS + w;
        word[0] = bits.x;
        word[1] = bits.y;
        word[2] = bits.z;
        word[3] = bits.w;
      }
    }
  } else {
    asm volatile("" : "+r"(first));  // see map_at in tile.cuh: no addresses are kept
#pragma unroll
    for (int slot = 0; slot < RowOf<Layout>::SIZE; ++slot) {
      const int row = RowOf<Layout>::index(slot);
      const bool inside = there & tile.has(row);
      const auto element = [&](int e) {
        const int at = (first + e) % tile.columns;
        return inside ? __ldg(tile.row(row) + at * tile.column_stride) : T(0.0f);
      };
#pragma unroll
      for (int w = 0; w < WORDS; ++w) {
        unsigned& word = result.word[slot * WORDS + w];
        if constexpr (sizeof(T) == 4) {
          word = __float_as_uint(element(w));
        } else {
          word = detail::join<T>(element(2 * w), element(2 * w + 1));
        }
        asm volatile("" : "+r"(word));  // one address at a time
      }
    }
  }
  return result;
}

// Lines on their way as map, swap_neighbours, row_sum, row_max and store take them up.
template <typename L, typename T, typename... A>
__device__ __forceinline__ auto map(const LinesOnTheirWay<L, T>& x, const A&... a) {
  return map(detail::taken<L>(x), a...);
}
template <typename L, typename T>
__device__ __forceinline__ Tile<L> swap_neighbours(const LinesOnTheirWay<L, T>& x) {
  return swap_neighbours(detail::taken<L>(x));
}
template <typename L, typename T, typename Rows>
__device__ __forceinline__ auto row_sum(const LinesOnTheirWay<L, T>& s, const Rows& partial) {
  return row_sum(detail::taken<L>(s), partial);
}
template <typename L, typename T, typename Rows>
__device__ __forceinline__ auto row_max(const LinesOnTheirWay<L, T>& s, const Rows& previous) {
  return row_max(detail::taken<L>(s), previous);
}
template <typename T, typename L, typename E>
__device__ __forceinline__ void store(const GmemTile<T>& out, const LinesOnTheirWay<L, E>& tile) {
  store(out, detail::taken<L>(tile));
}

// Lines, or a column vector of theirs, with each two neighbouring columns exchanged.
template <typename Layout>
__device__ __forceinline__ Tile<Layout> swap_neighbours(const Tile<Layout>& x) {
  Tile<Layout> swapped;
#pragma unroll
  for (int e = 0; e < Layout::SIZE; ++e) swapped.value[e] = x.value[e ^ 1];
  return swapped;
}

// row_sum and row_reduce (tile.cuh) of lines: each lane adds its eight columns in pairs.
template <int M, int N, int WARPS>
__device__ __forceinline__ auto row_sum(const Tile<Lines<M, N, WARPS>>& s,
                                        const Tile<LineRows<M, WARPS, LINE_LANES<N>>>& partial) {
  Tile<LineRows<M, WARPS, LINE_LANES<N>>> sum;
#pragma unroll
  for (int slot = 0; slot < LineRows<M, WARPS, LINE_LANES<N>>::SIZE; ++slot) {
    const float* x = s.value + slot * 8;
    const float own = ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
    sum.value[slot] = partial.value[slot] + (detail::in_line<N>() ? own : 0.0f);
  }
  return sum;
}

// (PTX ISA: shfl.sync.bfly over the lanes of a row)
template <int M, int WARPS, int LANES>
__device__ __forceinline__ auto row_reduce(const Tile<LineRows<M, WARPS, LANES>>& partial) {
  Tile<LineRows<M, WARPS, LANES>> sum = partial;
#pragma unroll
  for (int slot = 0; slot < LineRows<M, WARPS, LANES>::SIZE; ++slot) {
#pragma unroll
    for (int lane = 1; lane < LANES; lane *= 2) {
      sum.value[slot] += __shfl_xor_sync(0xffffffffu, sum.value[slot], lane);
    }
  }
  return sum;
}

// row_max (tile.cuh) of lines.
template <int M, int N, int WARPS>
__device__ __forceinline__ auto row_max(const Tile<Lines<M, N, WARPS>>& s,
                                        const Tile<LineRows<M, WARPS, LINE_LANES<N>>>& previous) {
  Tile<LineRows<M, WARPS, LINE_LANES<N>>> top = previous;
#pragma unroll
  for (int slot = 0; slot < LineRows<M, WARPS, LINE_LANES<N>>::SIZE; ++slot) {
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      top.value[slot] =
          fmaxf(top.value[slot], detail::in_line<N>() ? s.value[slot * 8 + e] : -INFINITY);
    }
#pragma unroll
    for (int lane = 1; lane < LINE_LANES<N>; lane *= 2) {
      top.value[slot] =
          fmaxf(top.value[slot], __shfl_xor_sync(0xffffffffu, top.value[slot], lane));
    }
  }
  return top;
}

// Writes lines to global memory, rounded to T; rows and columns outside are dropped.
template <typename T, int M, int N, int WARPS>
__device__ __forceinline__ void store(const GmemTile<T>& out, const Tile<Lines<M, N, WARPS>>& tile) {
  using Layout = Lines<M, N, WARPS>;
  const int first = LineCols<N>::index(0);
#pragma unroll
  for (int slot = 0; slot < RowOf<Layout>::SIZE; ++slot) {
    const int row = RowOf<Layout>::index(slot);
    const float* x = tile.value + slot * 8;
    if (!(detail::in_line<N>() & out.has(row))) continue;
    if constexpr (sizeof(T) == 2) {
      if (out.vectors) {
        if (first < out.columns) {
          *reinterpret_cast<uint4*>(out.row(row) + first) =
              make_uint4(pack<T>(x[0], x[1]), pack<T>(x[2], x[3]), pack<T>(x[4], x[5]),
                         pack<T>(x[6], x[7]));
        }
        continue;
      }
    }
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      if (first + e < out.columns) {
        out.row(row)[(first + e) * out.column_stride] = narrow<T>(x[e]);
      }
    }
  }
}

}  // namespace cubridge
