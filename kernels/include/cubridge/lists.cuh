// What lists the tiles of a mask that depends on data: counts and ranges over a tile's coordinates,
// and lists of whole numbers. Each is one operation of a warp, which does all of it by itself: every
// lane gets the result, no shared memory and no barrier is needed, and a block is best one warp.
#pragma once

#include <climits>

#include "gmem.cuh"
#include "tile.cuh"

namespace cubridge {

// Whether f holds for none (0), some (1) or all (2) of the R x C pairs (at.row + r, at.col + c). A
// lane has every 32nd column, so that loads by column are coalesced and stay in registers while the
// rows pass, and a load by row is one for the whole warp. Eight rows at a time, an eighth of the tile
// apart: one that is cut mostly shows it in the first ones, wherever the cut is. (PTX ISA:
// vote.sync.any)
template <int R, int C, typename F>
__device__ __forceinline__ int class_of(At at, F f) {
  constexpr int STEP = R % 8 == 0 ? 8 : 1;
  const int lane = threadIdx.x % 32;
  bool some = false;
  bool not_all = false;
  for (int row = 0; row < R / STEP; ++row) {
#pragma unroll
    for (int r = 0; r < STEP; ++r) {
#pragma unroll
      for (int c = 0; c < C; c += 32) {
        const bool inside = C % 32 == 0 || c + lane < C;
        const bool kept = f(at.row + row + r * (R / STEP), at.col + c + lane);
        some |= inside & kept;
        not_all |= inside & !kept;
      }
    }
    if (__any_sync(0xffffffffu, some) && __any_sync(0xffffffffu, not_all)) return 1;
  }
  return __any_sync(0xffffffffu, some) ? 2 : 0;
}

namespace detail {

// The lane's own values f(at.row + lane), f(at.row + lane + 32), ... below at.row + N, folded.
template <int N, typename F, typename Fold>
__device__ __forceinline__ int fold(At at, F f, int from, Fold fold) {
  static_assert(std::is_integral_v<decltype(f(0))>, "ranges are of whole numbers");
#pragma unroll
  for (int r = threadIdx.x % 32; r < N; r += 32) from = fold(from, static_cast<int>(f(at.row + r)));
  return from;
}

}  // namespace detail

// The smallest and the largest of f(at.row) to f(at.row + N - 1).
// (PTX ISA: redux.sync.min.s32, redux.sync.max.s32)
template <int N, typename F>
__device__ __forceinline__ int least(At at, F f) {
  const auto lower = [](int a, int b) { return a < b ? a : b; };
  return __reduce_min_sync(0xffffffffu, detail::fold<N>(at, f, INT_MAX, lower));
}
template <int N, typename F>
__device__ __forceinline__ int greatest(At at, F f) {
  const auto higher = [](int a, int b) { return a > b ? a : b; };
  return __reduce_max_sync(0xffffffffu, detail::fold<N>(at, f, INT_MIN, higher));
}

// `value` to the vector's first element, if it has one.
__device__ __forceinline__ void put(const GmemVector<int>& dst, int value) {
  if (threadIdx.x % 32 == 0 && dst.has(0)) *dst.at(0) = value;
}

// Those of f(at.row) to f(at.row + count - 1) that are not negative, written to the vector one after
// another in this order, as far as it reaches; gives how many they are. (PTX ISA: vote.sync.ballot)
template <typename F>
__device__ __forceinline__ int compact(const GmemVector<int>& dst, int count, At at, F f) {
  const int lane = threadIdx.x % 32;
  int found = 0;
  for (int first = 0; first < count; first += 32) {
    const int value = first + lane < count ? f(at.row + first + lane) : -1;
    const unsigned kept = __ballot_sync(0xffffffffu, value >= 0);
    const int place = found + __popc(kept & ((1u << lane) - 1u));
    if (value >= 0 && dst.has(place)) *dst.at(place) = value;
    found += __popc(kept);
  }
  return found;
}

// Whether f holds for each of the R x C pairs, a bit each, four words to a row: word w of a row has
// the columns that lane w of a quad holds in an accumulator, lowest first (PTX ISA: "Matrix fragments
// for mma.m16n8k16"; wgmma's has the same columns). A lane has one column of each word, so that what f
// loads by column stays in registers while the rows pass, and what it loads by row is one load for the
// whole warp. (PTX ISA: vote.sync.ballot)
//
// The two words of `ends`, which many blocks widen at once, are from then on at most the first column
// that has a bit set and at least the one past the last. (PTX ISA: redux.sync, red.global.min, .max)
template <int R, int C, typename F>
__device__ __forceinline__ void put_bits(const GmemVector<int>& dst, const GmemVector<int>& ends,
                                         At at, F f) {
  static_assert(C % 8 == 0 && C <= 128, "a word has the bits of at most 32 columns");
  constexpr int STEP = R % 8 == 0 ? 8 : 1;
  const int lane = threadIdx.x % 32;
  const int column = lane / 2 * 8 + lane % 2;
  const int least_of_word = at.col + lane % 4 * 2;  // a lane's words are all the same one of a row
  int first = INT_MAX;
  int past = INT_MIN;
  for (int row = 0; row < R; row += STEP) {
    unsigned mine = 0;
#pragma unroll
    for (int place = 0; place < 4 * STEP; ++place) {
      const bool kept = f(at.row + row + place / 4, at.col + column + place % 4 * 2);
      const unsigned word = __ballot_sync(0xffffffffu, (4 * lane < C) & kept);
      if (lane == place) mine = word;
    }
    if (lane < 4 * STEP && dst.has(4 * row + lane)) *dst.at(4 * row + lane) = static_cast<int>(mine);
    if (mine != 0) {  // bit b is column b / 2 * 8 + b % 2 of the word's
      const int low = __ffs(mine) - 1;
      const int high = 31 - __clz(mine);
      first = min(first, least_of_word + low / 2 * 8 + low % 2);
      past = max(past, least_of_word + high / 2 * 8 + high % 2 + 1);
    }
  }
  first = __reduce_min_sync(0xffffffffu, first);
  past = __reduce_max_sync(0xffffffffu, past);
  if (lane == 0 && first < past) {
    atomicMin(ends.at(0), first);
    atomicMax(ends.at(1), past);
  }
}

// The bits of a tile as a thread holds them: a word for each of its rows.
template <typename L>
struct RowBits {
  static_assert(ColOf<L>::SIZE <= 32, "a word has the bits of at most 32 columns");
  unsigned word[RowOf<L>::SIZE];
};

// A tile's bits: one load for each of the thread's rows, which `keep_bits` waits for. The vector's
// first element is word 0 of the tile's row 0; no bit is set outside the vector.
template <typename L>
__device__ __forceinline__ RowBits<L> load_bits(const GmemVector<int>& src) {
  RowBits<L> bits;
#pragma unroll
  for (int slot = 0; slot < RowOf<L>::SIZE; ++slot) {
    const int place = RowOf<L>::index(slot) * 4 + threadIdx.x % 4;
    bits.word[slot] = src.has(place) ? static_cast<unsigned>(__ldg(src.at(place))) : 0u;
  }
  return bits;
}

// s where its bit is set, minus infinity elsewhere.
template <typename L>
__device__ __forceinline__ Tile<L> keep_bits(const Tile<L>& s, const RowBits<L>& bits) {
  Tile<L> kept;
#pragma unroll
  for (int e = 0; e < L::SIZE; ++e) {
    const bool set = bits.word[L::row_slot(e)] & (1u << L::col_slot(e));
    kept.value[e] = set ? s.value[e] : -INFINITY;
  }
  return kept;
}

}  // namespace cubridge
