// What lists the tiles of a mask that depends on data: counts and ranges over a tile's coordinates,
// and lists of whole numbers. Each is one operation of a warp, which does all of it by itself: every
// lane gets the result, no shared memory and no barrier is needed, and a block is best one warp.
#pragma once

#include <climits>

#include "gmem.cuh"
#include "tile.cuh"

namespace cubridge {

// How many of the R x C pairs (at.row + r, at.col + c) f holds for. A lane has every 32nd column, so
// that loads by column are coalesced and stay in registers while the rows pass, and a load by row
// is one for the whole warp. (PTX ISA: redux.sync.add)
template <int R, int C, typename F>
__device__ __forceinline__ int count_kept(At at, F f) {
  const int lane = threadIdx.x % 32;
  int count = 0;
#pragma unroll 2
  for (int r = 0; r < R; ++r) {
#pragma unroll
    for (int c = 0; c < C; c += 32) {
      const bool inside = C % 32 == 0 || c + lane < C;
      count += inside && f(at.row + r, at.col + c + lane) ? 1 : 0;
    }
  }
  return __reduce_add_sync(0xffffffffu, count);
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

}  // namespace cubridge
