// What is done to register tiles element by element and row by row. Nothing here knows an instruction
// set; layout.cuh says what a layout is.
#pragma once

#include "dense.cuh"
#include "gmem.cuh"
#include "layout.cuh"
#include "lines.cuh"
#include "scalar.cuh"

namespace cubridge {

// Where a tile lies in the tensor: its element (r, c) has the coordinates (row + r, col + c).
struct At {
  int row;
  int col;
};
__device__ __forceinline__ At at(int row, int col = 0) { return At{row, col}; }

namespace detail {

template <typename Layout, typename = void>
struct IsVector : std::false_type {};
template <typename Layout>
struct IsVector<Layout, decltype(static_cast<void>(Layout::AXIS))> : std::true_type {};

// Which value of an operand with layout L belongs to element e of Layout: its own, or that of its
// row or column.
template <typename Layout, typename L>
__device__ __forceinline__ constexpr int slot(int e) {
  if constexpr (std::is_same_v<L, Layout>) {
    return e;
  } else if constexpr (IsVector<Layout>::value) {
    static_assert(std::is_same_v<L, Layout>, "vectors combine with vectors of the same layout");
    return e;
  } else if constexpr (std::is_same_v<L, RowOf<Layout>>) {
    return Layout::row_slot(e);
  } else {
    static_assert(std::is_same_v<L, ColOf<Layout>>,
                  "an operand of map or keep is a tile, or a row or column vector, of the first "
                  "operand's layout");
    return Layout::col_slot(e);
  }
}

// f at element e of every operand.
template <typename Layout, typename F, typename... L, typename... E>
__device__ __forceinline__ auto call(F& f, int e, const Tile<L, E>&... operand) {
  return f(operand.value[slot<Layout, L>(e)]...);
}
// The same followed by the coordinates of element e: i and j in a tile, i in a row vector, j in a
// column vector.
template <typename Layout, typename F, typename... L, typename... E>
__device__ __forceinline__ auto call_at(F& f, At at, int e, const Tile<L, E>&... operand) {
  if constexpr (!IsVector<Layout>::value) {
    return f(operand.value[slot<Layout, L>(e)]...,
             at.row + RowOf<Layout>::index(Layout::row_slot(e)),
             at.col + ColOf<Layout>::index(Layout::col_slot(e)));
  } else {
    const int origin = Layout::AXIS == Axis::ROW ? at.row : at.col;
    return f(operand.value[slot<Layout, L>(e)]..., origin + Layout::index(e));
  }
}

template <typename Layout, typename F, typename... Operand>
__device__ __forceinline__ auto map(F& f, const Operand&... operand) {
  Tile<Layout, decltype(call<Layout>(f, 0, operand...))> result;
#pragma unroll
  for (int e = 0; e < Layout::SIZE; ++e) result.value[e] = call<Layout>(f, e, operand...);
  return result;
}
template <typename Layout, typename F, typename... Operand>
__device__ __forceinline__ auto map_at(F& f, At at, const Operand&... operand) {
  // The compiler must not know that one origin is the same in every round of a loop over tiles: it
  // would keep the difference of each row and column of the tile in a register of its own.
  asm volatile("" : "+r"(at.row), "+r"(at.col));
  Tile<Layout, decltype(call_at<Layout>(f, at, 0, operand...))> result;
#pragma unroll
  for (int e = 0; e < Layout::SIZE; ++e) result.value[e] = call_at<Layout>(f, at, e, operand...);
  return result;
}

}  // namespace detail

template <typename Layout>
__device__ __forceinline__ Tile<Layout> fill(float value) {
  Tile<Layout> result;
#pragma unroll
  for (int e = 0; e < Layout::SIZE; ++e) result.value[e] = value;
  return result;
}

template <typename Layout>
__device__ __forceinline__ Tile<Layout> zeros() {
  return fill<Layout>(0.0f);
}

namespace detail {

// g with the last COUNT of its arguments first: an operation takes any number of operands, and what is
// done with them stands behind them.
template <int STEPS, typename G, typename First, typename... Rest>
__device__ __forceinline__ auto turned(G& g, const First& first, const Rest&... rest) {
  if constexpr (STEPS == 0) {
    return g(first, rest...);
  } else {
    return turned<STEPS - 1>(g, rest..., first);
  }
}
template <int COUNT, typename G, typename... A>
__device__ __forceinline__ auto last_first(G& g, const A&... a) {
  return turned<sizeof...(A) - COUNT>(g, a...);
}

// Whether the last but one of the types is At: coordinates are asked for.
template <typename... A>
struct HasAt : std::false_type {};
template <typename A, typename B, typename C, typename... Rest>
struct HasAt<A, B, C, Rest...> : HasAt<B, C, Rest...> {};
template <typename F>
struct HasAt<At, F> : std::true_type {};

}  // namespace detail

// map(x, a.., [at(r0, c0)], f): element by element over x; row and column vectors of x's layout, and
// tiles of it, are the operands a, of which there may be any number. f receives an element of each
// operand and then, if `at` is given, the coordinates.
template <typename L, typename E, typename... A>
__device__ __forceinline__ auto map(const Tile<L, E>& x, const A&... a) {
  if constexpr (detail::HasAt<A...>::value) {
    const auto run = [&](At at, const auto& f, const auto&... operand) {
      return detail::map_at<L>(f, at, x, detail::taken<L>(operand)...);
    };
    return detail::last_first<2>(run, a...);
  } else {
    const auto run = [&](const auto& f, const auto&... operand) {
      return detail::map<L>(f, x, detail::taken<L>(operand)...);
    };
    return detail::last_first<1>(run, a...);
  }
}

// keep(s, a.., at(r0, c0), f): s where f holds, minus infinity elsewhere. f receives an element of each
// of the operands a (row or column vectors, or tiles; any number) and the coordinates.
template <typename L, typename... A>
__device__ __forceinline__ Tile<L> keep(const Tile<L>& s, const A&... a) {
  static_assert(detail::HasAt<A...>::value, "keep takes at(row, column) and a predicate last");
  const auto run = [&](At at, const auto& f, const auto&... operand) {
    const auto kept = [&](float x, auto... rest) { return f(rest...) ? x : -INFINITY; };
    return detail::map_at<L>(kept, at, s, detail::taken<L>(operand)...);
  };
  return detail::last_first<2>(run, a...);
}

// The largest of `previous` and each row of s. NaN elements are passed over, as fmaxf does.
// (PTX ISA: shfl.sync.bfly over the four lanes of a row)
template <typename L>
__device__ __forceinline__ Tile<RowOf<L>> row_max(const Tile<L>& s,
                                                  const Tile<RowOf<L>>& previous) {
  Tile<RowOf<L>> top = previous;
#pragma unroll
  for (int e = 0; e < L::SIZE; e += 2) {
    const int row = L::row_slot(e);
    top.value[row] = fmaxf(top.value[row], fmaxf(s.value[e], s.value[e + 1]));
  }
#pragma unroll
  for (int row = 0; row < RowOf<L>::SIZE; ++row) {
    top.value[row] = fmaxf(top.value[row], __shfl_xor_sync(0xffffffffu, top.value[row], 1));
    top.value[row] = fmaxf(top.value[row], __shfl_xor_sync(0xffffffffu, top.value[row], 2));
  }
  return top;
}

// `partial` plus the columns of s that this thread holds: a partial sum, which may be scaled per row
// and accumulated further, and is the row's sum only after row_reduce. Neighbours are added first,
// then the pairs from left to right.
template <typename L>
__device__ __forceinline__ Tile<RowOf<L>> row_sum(const Tile<L>& s,
                                                  const Tile<RowOf<L>>& partial) {
  Tile<RowOf<L>> sum = partial;
#pragma unroll
  for (int e = 0; e < L::SIZE; e += 2) {
    sum.value[L::row_slot(e)] += s.value[e] + s.value[e + 1];
  }
  return sum;
}

// The row sums from their partial sums, in every lane of the row. Each lane adds in the same order.
template <typename Rows>
__device__ __forceinline__ Tile<Rows> row_reduce(const Tile<Rows>& partial) {
  Tile<Rows> sum = partial;
#pragma unroll
  for (int row = 0; row < Rows::SIZE; ++row) {
    sum.value[row] += __shfl_xor_sync(0xffffffffu, sum.value[row], 1);
    sum.value[row] += __shfl_xor_sync(0xffffffffu, sum.value[row], 2);
  }
  return sum;
}

// Vectors of a tile of Layout: the element of each row (column) of the tile, widened, 0 outside.
template <typename Layout, typename T>
__device__ __forceinline__ auto load_rows(const GmemVector<T>& vector) {
  using E = decltype(widen(T{}));
  Tile<RowOf<Layout>, E> result;
#pragma unroll
  for (int slot = 0; slot < RowOf<Layout>::SIZE; ++slot) {
    const int row = RowOf<Layout>::index(slot);
    result.value[slot] = vector.has(row) ? widen(*vector.at(row)) : E(0);
  }
  return result;
}
template <typename Layout, typename T>
__device__ __forceinline__ auto load_cols(const GmemVector<T>& vector) {
  using E = decltype(widen(T{}));
  Tile<ColOf<Layout>, E> result;
#pragma unroll
  for (int slot = 0; slot < ColOf<Layout>::SIZE; ++slot) {
    const int col = ColOf<Layout>::index(slot);
    result.value[slot] = vector.has(col) ? widen(*vector.at(col)) : E(0);
  }
  return result;
}

// Writes a row vector, one lane of each quad per row; elements outside are dropped.
template <typename Rows, typename T>
__device__ __forceinline__ void store_rows(const GmemVector<T>& vector, const Tile<Rows>& rows) {
  static_assert(Rows::AXIS == Axis::ROW, "store_rows takes a row vector");
  if (threadIdx.x % 4 != 0) return;
#pragma unroll
  for (int slot = 0; slot < Rows::SIZE; ++slot) {
    const int row = Rows::index(slot);
    if (vector.has(row)) *vector.at(row) = narrow<T>(rows.value[slot]);
  }
}

}  // namespace cubridge
