// Register tiles of a warpgroup: the accumulator of wgmma, the register operand made from it, and its
// store to global memory. Element-wise and row operations are those of tile.cuh.
#pragma once

#include <cstdint>

#include "gmem.cuh"
#include "scalar.cuh"
#include "tile.cuh"

namespace cubridge {

// The rows and columns of a warpgroup's accumulator that this thread holds (PTX ISA, "wgmma.mma_async
// accumulator D fragment"): warp w of the warpgroup holds rows 16 w .. 16 w + 15; lane l holds rows
// l / 4 and l / 4 + 8 of them, and of each 8 columns the two from 2 (l mod 4) on.
template <int M>
struct WgmmaRows {
  static constexpr Axis AXIS = Axis::ROW;
  static constexpr int SIZE = 2;
  __device__ static __forceinline__ int index(int slot) {
    const int thread = static_cast<int>(threadIdx.x);
    return thread % 128 / 32 * 16 + thread % 32 / 4 + slot * 8;
  }
};
template <int N>
struct WgmmaCols {
  static constexpr Axis AXIS = Axis::COL;
  static constexpr int SIZE = N / 4;
  __device__ static __forceinline__ int index(int slot) {
    return slot / 2 * 8 + static_cast<int>(threadIdx.x) % 4 * 2 + slot % 2;
  }
};

// The accumulator of m64nNk16: 64 rows per warpgroup.
template <int M, int N>
struct WgmmaAcc {
  static_assert(M == 64, "a warpgroup's accumulator has 64 rows");
  static_assert(N % 8 == 0 && N <= 256, "wgmma is a multiple of 8 wide, up to 256");
  using Rows = WgmmaRows<M>;
  using Cols = WgmmaCols<N>;
  static constexpr int SIZE = N / 2;
  static constexpr int WGMMA_COLS = N;
  __device__ static constexpr int row_slot(int e) { return e / 2 % 2; }
  __device__ static constexpr int col_slot(int e) { return e / 4 * 2 + e % 2; }
};

// The register operand a of m64nNk16, for a tile of 64 x K: four packed registers per 16 columns.
template <int M, int K>
struct WgmmaA {
  static_assert(M == 64 && K % 16 == 0, "a register operand is 64 rows by a multiple of 16");
};

template <typename Layout, typename T>
struct Operand;

template <int M, int K, typename T>
struct Operand<WgmmaA<M, K>, T> {
  uint32_t value[K / 16][4];
};

// ---- element by element ---------------------------------------------------------------------

// A column vector that stays in global memory until an operation takes up its columns: 32 to 64 more
// registers do not fit beside two accumulators. The tensor is not written while the kernel runs.
template <typename Layout, typename T>
struct ColsInMemory {
  GmemVector<T> vector;
};

template <typename Layout, typename T, int N = Layout::WGMMA_COLS>
__device__ __forceinline__ ColsInMemory<Layout, T> load_cols(GmemVector<T>&& vector) {
  return {vector};
}

namespace detail {

// Holds the values of a tile in place between the asynchronous instructions around it: a statement
// on an accumulator that a matmul has just left, or will take up, must not move past its mma_wait or
// mma_fence. No instruction comes of it.
template <typename Layout>
__device__ __forceinline__ void settle(Tile<Layout>& tile) {
#pragma unroll
  for (int e = 0; e < Layout::SIZE; ++e) asm volatile("" : "+f"(tile.value[e])::"memory");
}

// The 4 x 4 transpose among the lanes of a quad: lane l gets the l-th of each lane's four.
__device__ __forceinline__ uint4 transpose_quad(const uint4& mine) {
  const int lane = static_cast<int>(threadIdx.x) % 4;
  const bool odd = lane % 2 != 0;
  const bool high = lane / 2 != 0;
  const uint32_t give0 = __shfl_xor_sync(0xffffffffu, odd ? mine.x : mine.y, 1);
  const uint32_t give1 = __shfl_xor_sync(0xffffffffu, odd ? mine.z : mine.w, 1);
  const uint32_t a0 = odd ? give0 : mine.x;  // of lanes 0 and 1, or 2 and 3
  const uint32_t a1 = odd ? mine.y : give0;
  const uint32_t b0 = odd ? give1 : mine.z;
  const uint32_t b1 = odd ? mine.w : give1;
  const uint32_t far0 = __shfl_xor_sync(0xffffffffu, high ? a0 : b0, 2);
  const uint32_t far1 = __shfl_xor_sync(0xffffffffu, high ? a1 : b1, 2);
  return make_uint4(high ? far0 : a0, high ? far1 : a1, high ? b0 : far0, high ? b1 : far1);
}

// How an operation that goes block by block reads an operand, COUNT elements at a time: a column
// vector in memory as the values that the block needs.
template <typename Layout, int COUNT, typename Operand>
struct Reader {
  const Operand& operand;
  __device__ __forceinline__ explicit Reader(const Operand& from) : operand(from) {}
  __device__ __forceinline__ const Operand& next(int) { return operand; }
};
template <typename Layout, int COUNT, typename T>
struct Reader<Layout, COUNT, ColsInMemory<Layout, T>> {
  const ColsInMemory<Layout, T>& operand;
  __device__ __forceinline__ explicit Reader(const ColsInMemory<Layout, T>& from) : operand(from) {}
  __device__ __forceinline__ auto next(int first) {
    using E = decltype(widen(T{}));
    Tile<ColOf<Layout>, E> result;
#pragma unroll
    for (int e = first; e < first + COUNT && e < Layout::SIZE; ++e) {
      const int slot = Layout::col_slot(e);
      const int col = ColOf<Layout>::index(slot);
      if constexpr (std::is_same_v<T, bool>) {
        result.value[slot] = operand.vector.has(col) ? *operand.vector.at(col) : false;
      } else {
        result.value[slot] = operand.vector.has(col) ? widen(__ldg(operand.vector.at(col))) : E(0);
      }
    }
    return result;
  }
};
// A tile in memory, one block ahead, so that its latency passes under the block before.
template <typename Layout, int COUNT, typename T>
struct AheadReader {
  const TileInMemory<Layout, T>& operand;
  Pairs<Layout, T, COUNT> ahead;
  __device__ __forceinline__ explicit AheadReader(const TileInMemory<Layout, T>& from) : operand(from) {
    ahead.load(0, operand);
  }
  __device__ __forceinline__ auto next(int first) {
    Pairs<Layout, T, COUNT> now = ahead;
    now.arrange();
    if (first + COUNT < Layout::SIZE) ahead.load(first + COUNT, operand);
    Tile<Layout, decltype(widen(T{}))> result;
#pragma unroll
    for (int e = first; e < first + COUNT && e < Layout::SIZE; ++e) {
      result.value[e] = unpack<T>(now.value[(e - first) / 2], e % 2);
    }
    return result;
  }
};
// A tile in memory of elements of two bytes, 128 columns on their way before the first is taken up (64
// of a wider one): half as many registers as the accumulator's, which are free behind the loop over
// keys. Of each 32 columns lane l of a quad loads 8 l .. 8 l + 7, in one access where rows allow it, and
// a transpose gives each lane its own.
template <typename Layout, int COUNT, typename T>
struct WideReader {
  static constexpr int BLOCKS = Layout::WGMMA_COLS > 128 ? 2 : 4;  // of 32 columns
  const TileInMemory<Layout, T>& from;
  uint4 wide[2][BLOCKS];

  __device__ __forceinline__ explicit WideReader(const TileInMemory<Layout, T>& operand)
      : from(operand) {
    load(0);
  }

  __device__ __forceinline__ void load(int first) {
    const GmemTile<T>& tile = from.tile;
    const int column = from.column + first + static_cast<int>(threadIdx.x) % 4 * 8;
    if (tile.vectors & (from.column % 8 == 0)) {
#pragma unroll
      for (int n = 0; n < 2 * BLOCKS; ++n) {
        const int row = WgmmaRows<64>::index(n % 2);
        const int at = column + n / 2 * 32;
        load_bits(wide[n % 2][n / 2], tile.row(row) + at, tile.has(row) & inside(at));
      }
    } else {
#pragma unroll
      for (int n = 0; n < 2 * BLOCKS; ++n) {
        wide[n % 2][n / 2] = eight(WgmmaRows<64>::index(n % 2), column + n / 2 * 32);
      }
    }
#pragma unroll
    for (int n = 0; n < 2 * BLOCKS; ++n) wide[n % 2][n / 2] = transpose_quad(wide[n % 2][n / 2]);
  }
  __device__ __forceinline__ uint4 eight(int row, int column) const {
    const T* at = from.tile.row(row) + column * from.tile.column_stride;
    unsigned word[4];
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      unsigned short bits;
      load_bits(bits, at, from.tile.has(row) & inside(column + e));
      unsigned& pair = word[e / 2];
      pair = e % 2 == 0 ? bits : pair | static_cast<unsigned>(bits) << 16;
      at += from.tile.column_stride;
      asm volatile("" : "+l"(at), "+r"(pair));  // one address at a time
    }
    return make_uint4(word[0], word[1], word[2], word[3]);
  }
  __device__ __forceinline__ bool inside(int column) const {
    return static_cast<unsigned>(column) < static_cast<unsigned>(from.tile.columns);
  }

  __device__ __forceinline__ auto next(int first) {
    if (first > 0 && first % (16 * BLOCKS) == 0) load(first * 2);
    Tile<Layout, decltype(widen(T{}))> result;
#pragma unroll
    for (int e = first; e < first + COUNT && e < Layout::SIZE; ++e) {
      const uint4& four = wide[Layout::row_slot(e)][e / 16 % BLOCKS];
      const unsigned pairs[4] = {four.x, four.y, four.z, four.w};
      result.value[e] = unpack<T>(pairs[e / 4 % 4], e % 2);
    }
    return result;
  }
};
template <typename Layout, int COUNT, typename T>
struct Reader<Layout, COUNT, TileInMemory<Layout, T>>
    : std::conditional_t<sizeof(T) == 2, WideReader<Layout, COUNT, T>,
                         AheadReader<Layout, COUNT, T>> {
  using Base = std::conditional_t<sizeof(T) == 2, WideReader<Layout, COUNT, T>,
                                  AheadReader<Layout, COUNT, T>>;
  using Base::Base;
};
template <typename Layout, int COUNT, typename T>
struct Reader<Layout, COUNT, TileOnItsWay<Layout, T>> {
  Pairs<Layout, T, Layout::SIZE> pairs;
  __device__ __forceinline__ explicit Reader(const TileOnItsWay<Layout, T>& from)
      : pairs(from.pairs) {
    pairs.arrange();
  }
  __device__ __forceinline__ auto next(int first) {
    Tile<Layout, decltype(widen(T{}))> result;
#pragma unroll
    for (int e = first; e < first + COUNT && e < Layout::SIZE; ++e) {
      result.value[e] = unpack<T>(pairs.value[e / 2], e % 2);
    }
    return result;
  }
};

// `f(e, operands..)` for every element, COUNT at a time, each time in a block of code of its own:
// ptxas starts all loads, predicates and function calls of a block before it uses the first, and
// those of a whole tile do not fit beside two accumulators.
template <int COUNT, typename Layout, typename F, typename... Readers>
__device__ __forceinline__ Tile<Layout> read_in_blocks(const Tile<Layout>& x, F f,
                                                       Readers... reader) {
  Tile<Layout> result = x;
#pragma unroll
  for (int first = 0; first < Layout::SIZE; first += COUNT) {
    if (always()) {
      [&](const auto&... now) {
#pragma unroll
        for (int e = first; e < first + COUNT && e < Layout::SIZE; ++e) {
          result.value[e] = f(e, now...);
          asm volatile("" : "+f"(result.value[e])::"memory");
        }
      }(reader.next(first)...);
    }
  }
  return result;
}
template <int COUNT, typename Layout, typename F, typename... Operand>
__device__ __forceinline__ Tile<Layout> in_blocks(const Tile<Layout>& x, F f,
                                                  const Operand&... operand) {
  return read_in_blocks<COUNT>(x, f, Reader<Layout, COUNT, Operand>(operand)...);
}

template <typename Layout, typename F, typename... Operand>
__device__ __forceinline__ Tile<Layout> map_in_blocks(Tile<Layout>& x, F& f,
                                                      const Operand&... operand) {
  settle(x);
  return in_blocks<8>(
      x, [&](int e, const auto&... now) -> float { return call<Layout>(f, e, x, now...); },
      operand...);
}
template <int COUNT = 8, typename Layout, typename F, typename... Operand>
__device__ __forceinline__ Tile<Layout> map_in_blocks_at(Tile<Layout>& x, At at, F& f,
                                                         const Operand&... operand) {
  settle(x);
  asm volatile("" : "+r"(at.row), "+r"(at.col));  // see map_at in tile.cuh
  return in_blocks<COUNT>(
      x, [&](int e, const auto&... now) -> float { return call_at<Layout>(f, at, e, x, now...); },
      operand...);
}
template <typename Layout, typename F, typename... Operand>
__device__ __forceinline__ Tile<Layout> keep_in_blocks(Tile<Layout>& s, At at, F& f,
                                                       const Operand&... operand) {
  // Eight at a time, where they fit, share what a predicate computes for a row among four columns.
  constexpr int COUNT = sizeof...(Operand) == 0 && Layout::SIZE <= 56 ? 8 : 4;
  const auto kept = [&](float x, auto... rest) { return f(rest...) ? x : -INFINITY; };
  return map_in_blocks_at<COUNT>(s, at, kept, operand...);
}

}  // namespace detail

// map (tile.cuh) over an accumulator of wgmma. With row vectors alone it is the softmax's own: short,
// and scheduled as a whole; everything else goes block by block.
template <int N, typename F>
__device__ __forceinline__ auto map(Tile<WgmmaAcc<64, N>>& x, const Tile<WgmmaRows<64>>& a, F f) {
  detail::settle(x);
  auto result = detail::map<WgmmaAcc<64, N>>(f, x, a);
  detail::settle(result);
  return result;
}
template <int N, typename... A>
__device__ __forceinline__ auto map(Tile<WgmmaAcc<64, N>>& x, const A&... a) {
  if constexpr (detail::HasAt<A...>::value) {
    const auto run = [&](At at, const auto& f, const auto&... operand) {
      return detail::map_in_blocks_at(x, at, f, operand...);
    };
    return detail::last_first<2>(run, a...);
  } else {
    const auto run = [&](const auto& f, const auto&... operand) {
      return detail::map_in_blocks(x, f, operand...);
    };
    return detail::last_first<1>(run, a...);
  }
}

// keep (tile.cuh) on an accumulator of wgmma.
template <int N, typename... A>
__device__ __forceinline__ auto keep(Tile<WgmmaAcc<64, N>>& s, const A&... a) {
  static_assert(detail::HasAt<A...>::value, "keep takes at(row, column) and a predicate last");
  const auto run = [&](At at, const auto& f, const auto&... operand) {
    return detail::keep_in_blocks(s, at, f, operand...);
  };
  return detail::last_first<2>(run, a...);
}

// The accumulator rounded to T (to nearest even) in the layout of operand a: both hold the same
// elements in the same lanes, so nothing moves between threads.
template <typename T, int N>
__device__ __forceinline__ Operand<WgmmaA<64, N>, T> to_operand(
    const Tile<WgmmaAcc<64, N>>& tile) {
  Operand<WgmmaA<64, N>, T> operand;
#pragma unroll
  for (int pair = 0; pair < N / 4; ++pair) {
    operand.value[pair / 4][pair % 4] =
        pack<T>(tile.value[2 * pair], tile.value[2 * pair + 1]);
    asm volatile("" : "+r"(operand.value[pair / 4][pair % 4])::"memory");
  }
  return operand;
}

// The largest of `previous` and each row, with two running maxima per row so that the chain of
// dependent instructions is half as long.
template <int N>
__device__ __forceinline__ Tile<WgmmaRows<64>> row_max(
    Tile<WgmmaAcc<64, N>>& s, const Tile<WgmmaRows<64>>& previous) {
  detail::settle(s);
  Tile<WgmmaRows<64>> top;
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    float even = fmaxf(previous.value[row], s.value[2 * row]);
    float odd = s.value[2 * row + 1];
#pragma unroll
    for (int e = 2 * row + 4; e < N / 2; e += 4) {
      even = fmaxf(even, s.value[e]);
      odd = fmaxf(odd, s.value[e + 1]);
    }
    top.value[row] = fmaxf(even, odd);
    top.value[row] = fmaxf(top.value[row], __shfl_xor_sync(0xffffffffu, top.value[row], 1));
    top.value[row] = fmaxf(top.value[row], __shfl_xor_sync(0xffffffffu, top.value[row], 2));
  }
  return top;
}

// `partial` plus this thread's columns (see tile.cuh), in two running sums per row.
template <int N>
__device__ __forceinline__ Tile<WgmmaRows<64>> row_sum(
    const Tile<WgmmaAcc<64, N>>& s, const Tile<WgmmaRows<64>>& partial) {
  Tile<WgmmaRows<64>> sum;
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    float even = partial.value[row] + s.value[2 * row];
    float odd = s.value[2 * row + 1];
#pragma unroll
    for (int e = 2 * row + 4; e < N / 2; e += 4) {
      even += s.value[e];
      odd += s.value[e + 1];
    }
    sum.value[row] = even + odd;
  }
  return sum;
}

// Writes a tile to global memory, rounded to T; rows and columns outside are dropped. Where whole 16-byte
// accesses are legal, the four lanes of a quad first exchange their pairs of each 32 columns, so that
// each writes 8 neighbouring ones; of the last 32 some may not be there.
template <typename T, int N>
__device__ __forceinline__ void store(const GmemTile<T>& out, const Tile<WgmmaAcc<64, N>>& tile) {
  using Layout = WgmmaAcc<64, N>;
  const int lane = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    const int row = WgmmaRows<64>::index(slot);
    if (out.vectors) {
#pragma unroll
      for (int block = 0; block < N / 8; block += 4) {
        uint32_t pair[4];  // columns 2 lane, 2 lane + 1 of each of four blocks of 8
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int e = (block + i) * 4 + slot * 2;
          pair[i] = block + i < N / 8 ? pack<T>(tile.value[e], tile.value[e + 1]) : 0;
        }
        const uint4 packed =
            detail::transpose_quad(make_uint4(pair[0], pair[1], pair[2], pair[3]));
        if (out.has(row) && (block + lane) * 8 < out.columns) {
          *reinterpret_cast<uint4*>(out.row(row) + (block + lane) * 8) = packed;
        }
      }
    } else if (out.has(row)) {
      T* pair = out.row(row) + WgmmaCols<N>::index(0) * out.column_stride;
#pragma unroll
      for (int e = slot * 2; e < N / 2; e += 4) {
        const int column = WgmmaCols<N>::index(0) + e / 4 * 8;
        if (column < out.columns) pair[0] = narrow<T>(tile.value[e]);
        if (column + 1 < out.columns) pair[out.column_stride] = narrow<T>(tile.value[e + 1]);
        pair += 8 * out.column_stride;
        asm volatile("" : "+l"(pair));  // one address at a time
      }
    }
  }
}

}  // namespace cubridge
