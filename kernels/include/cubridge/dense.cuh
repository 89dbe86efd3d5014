// Tiles of a dense tensor, one element per pair of query and key: how map and keep take them up from
// global memory.
#pragma once

#include "gmem.cuh"
#include "layout.cuh"
#include "scalar.cuh"

namespace cubridge {

// A tile of Layout that stays in global memory until an operation takes up its elements: beside the
// accumulators there are no registers for all of it. The tensor is not written while the kernel runs.
template <typename Layout, typename T>
struct TileInMemory {
  static_assert(sizeof(T) <= 4, "elements of at most 4 bytes");
  GmemTile<T> tile;
  int column;   // of the tile's first element
  int aligned;  // bytes that one access may take: of one element, two, or four; all columns inside
};

namespace detail {

// True, which the compiler does not know. What stands behind it is a block of code of its own.
__device__ __forceinline__ bool always() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread != 0x7fffffff;
}

// `out` from `from`, zeros unless `inside`; no branch. (PTX ISA: ld.global.nc)
__device__ __forceinline__ void load_bits(unsigned short& out, const void* from, bool inside) {
  asm("{\n .reg .pred p;\n setp.ne.u32 p, %2, 0;\n mov.b16 %0, 0;\n"
      " @p ld.global.nc.b16 %0, [%1];\n}"
      : "=h"(out)
      : "l"(from), "r"(static_cast<unsigned>(inside)));
}
__device__ __forceinline__ void load_bits(unsigned& out, const void* from, bool inside) {
  asm("{\n .reg .pred p;\n setp.ne.u32 p, %2, 0;\n mov.b32 %0, 0;\n"
      " @p ld.global.nc.b32 %0, [%1];\n}"
      : "=r"(out)
      : "l"(from), "r"(static_cast<unsigned>(inside)));
}
__device__ __forceinline__ void load_bits(uint2& out, const void* from, bool inside) {
  asm("{\n .reg .pred p;\n setp.ne.u32 p, %3, 0;\n mov.b32 %0, 0;\n mov.b32 %1, 0;\n"
      " @p ld.global.nc.v2.b32 {%0, %1}, [%2];\n}"
      : "=r"(out.x), "=r"(out.y)
      : "l"(from), "r"(static_cast<unsigned>(inside)));
}

__device__ __forceinline__ void load_bits(uint4& out, const void* from, bool inside) {
  asm("{\n .reg .pred p;\n setp.ne.u32 p, %5, 0;\n mov.b32 %0, 0;\n mov.b32 %1, 0;\n"
      " mov.b32 %2, 0;\n mov.b32 %3, 0;\n @p ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];\n}"
      : "=r"(out.x), "=r"(out.y), "=r"(out.z), "=r"(out.w)
      : "l"(from), "r"(static_cast<unsigned>(inside)));
}

// Two neighbouring elements in one register, or two of 4 bytes each.
template <typename T>
using Pair = std::conditional_t<sizeof(T) == 4, uint2,
                                std::conditional_t<sizeof(T) == 2, unsigned, unsigned short>>;

template <typename T>
__device__ __forceinline__ auto unpack(Pair<T> pair, int which) {
  if constexpr (std::is_same_v<T, bool>) {
    return (pair >> (8 * which) & 0xff) != 0;
  } else if constexpr (sizeof(T) == 4) {
    const unsigned bits = which == 0 ? pair.x : pair.y;
    return widen(reinterpret_cast<const T&>(bits));
  } else if constexpr (std::is_same_v<T, bf16>) {
    return __uint_as_float(which == 0 ? pair << 16 : pair & 0xffff0000u);
  } else {
    return widen(__ushort_as_half(static_cast<unsigned short>(pair >> (16 * which))));
  }
}
template <typename T>
__device__ __forceinline__ Pair<T> join(T low, T high) {
  if constexpr (sizeof(T) == 4) {
    return {reinterpret_cast<const unsigned&>(low), reinterpret_cast<const unsigned&>(high)};
  } else if constexpr (sizeof(T) == 2) {
    return reinterpret_cast<const unsigned short&>(low) |
           static_cast<unsigned>(reinterpret_cast<const unsigned short&>(high)) << 16;
  } else {
    return static_cast<unsigned short>(static_cast<unsigned>(low) |
                                       static_cast<unsigned>(high) << 8);
  }
}

// Elements first .. first + COUNT - 1 of a tile in memory, in pairs, 0 outside: `load` starts the
// accesses, `value` holds them after `arrange`.
//
// A quad's lanes hold two columns each of every 8. Elements of 2 bytes come four at a time where
// alignment allows: of 16 columns lane l loads 4 l .. 4 l + 3, so that a warp reads whole 32-byte
// sectors, and `arrange` gives each lane its own: pairs l and 4 + l, of which lane l / 2 and lane
// 2 + l / 2 hold pair l mod 2. Two shuffles do it, as each lane gives another pair in each.
template <typename Layout, typename T, int COUNT>
struct Pairs {
  static constexpr bool QUADS = sizeof(T) == 2 && COUNT % 8 == 0 && Layout::SIZE % 8 == 0;
  static_assert(COUNT % 2 == 0, "elements come in pairs");
  Pair<T> value[COUNT / 2];
  bool arranged;

  __device__ __forceinline__ void load(int first, const TileInMemory<Layout, T>& from) {
    using Cols = ColOf<Layout>;
    arranged = !(QUADS && from.aligned >= 4 * static_cast<int>(sizeof(T)));
    if (!arranged) {
      if constexpr (QUADS) {
        const int lane = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
        for (int e = first; e < first + COUNT && e < Layout::SIZE; e += 8) {
#pragma unroll
          for (int slot = 0; slot < 2; ++slot) {
            const int row = RowOf<Layout>::index(Layout::row_slot(e + 2 * slot));
            const T* quad = from.tile.row(row) + (from.column + 4 * lane);
            uint2 bits;
            load_bits(bits, quad + (Cols::index(Layout::col_slot(e)) - Cols::index(0)),
                      from.tile.has(row));
            value[(e - first) / 2 + slot] = bits.x;
            value[(e - first) / 2 + slot + 2] = bits.y;
          }
        }
      }
    } else if (from.aligned >= 2 * static_cast<int>(sizeof(T))) {
#pragma unroll
      for (int e = first; e < first + COUNT && e < Layout::SIZE; e += 2) {
        // The lane's first column and a constant from there: an address and an immediate.
        const int row = RowOf<Layout>::index(Layout::row_slot(e));
        const T* pair = from.tile.row(row) + (from.column + Cols::index(0));
        load_bits(value[(e - first) / 2],
                  pair + (Cols::index(Layout::col_slot(e)) - Cols::index(0)), from.tile.has(row));
      }
    } else {
#pragma unroll
      for (int e = first; e < first + COUNT && e < Layout::SIZE; e += 2) {
        if (always()) value[(e - first) / 2] = single(e, from);
      }
    }
  }

  // The pair of element e, each of the two by itself.
  __device__ static __forceinline__ Pair<T> single(int e, const TileInMemory<Layout, T>& from) {
    const int row = RowOf<Layout>::index(Layout::row_slot(e));
    T element[2];
#pragma unroll
    for (int next = 0; next < 2; ++next) {
      const int col = from.column + ColOf<Layout>::index(Layout::col_slot(e + next));
      const bool inside = from.tile.has(row) & (static_cast<unsigned>(col) <
                                                static_cast<unsigned>(from.tile.columns));
      element[next] = inside ? from.tile.row(row)[col * from.tile.column_stride] : T(0);
    }
    return join<T>(element[0], element[1]);
  }

  __device__ __forceinline__ void arrange() {
    if constexpr (QUADS) {
      if (arranged) return;
      const int lane = static_cast<int>(threadIdx.x) % 4;
      const bool high = lane / 2 != 0;
      const bool odd = lane % 2 != 0;
      // Lane 0 takes from 0 and 2, lane 1 from 2 and 0, lane 2 from 1 and 3, lane 3 from 3 and 1.
      const int near = odd ? 2 + lane / 2 : lane / 2;
      const int far = odd ? lane / 2 : 2 + lane / 2;
#pragma unroll
      for (int p = 0; p < COUNT / 2; p += 4) {
#pragma unroll
        for (int slot = 0; slot < 2; ++slot) {
          const unsigned low = value[p + slot], upper = value[p + slot + 2];
          const unsigned a = __shfl_sync(0xffffffffu, high ? upper : low, near, 4);
          const unsigned b = __shfl_sync(0xffffffffu, high ? low : upper, far, 4);
          value[p + slot] = odd ? b : a;
          value[p + slot + 2] = odd ? a : b;
        }
      }
    }
  }
};

// Whether all of a tile fits into registers beside a warpgroup's accumulators: elements of two bytes
// of at most 80 columns, or of four of at most 64.
template <typename Layout, typename T, typename = void>
constexpr bool leaves_registers = false;
template <typename Layout, typename T>
constexpr bool leaves_registers<Layout, T, std::enable_if_t<(Layout::WGMMA_COLS <= 80)>> =
    sizeof(T) == 2 || (sizeof(T) == 4 && Layout::WGMMA_COLS <= 64);

// An operand of map or keep as values: a tile in memory is loaded here, all of it.
template <typename Layout, typename Operand>
__device__ __forceinline__ const Operand& taken(const Operand& operand) {
  return operand;
}
template <typename Layout, typename T>
__device__ __forceinline__ auto taken(const TileInMemory<Layout, T>& operand) {
  Pairs<Layout, T, Layout::SIZE> pairs;
  pairs.load(0, operand);
  pairs.arrange();
  Tile<Layout, decltype(widen(T{}))> result;
#pragma unroll
  for (int e = 0; e < Layout::SIZE; ++e) result.value[e] = unpack<T>(pairs.value[e / 2], e % 2);
  return result;
}

template <typename Layout, typename T>
__device__ __forceinline__ TileInMemory<Layout, T> in_memory(const GmemTile<T>& tile, int column) {
  constexpr int COLUMNS = ColOf<Layout>::SIZE * 4;
  const unsigned long long steps = reinterpret_cast<unsigned long long>(tile.base) |
                                   static_cast<unsigned long long>(tile.row_stride * sizeof(T)) |
                                   static_cast<unsigned long long>(column * sizeof(T));
  const bool inside = (tile.column_stride == 1) & (column >= 0) & (column + COLUMNS <= tile.columns);
  const int most = !inside ? 1 : steps % (4 * sizeof(T)) == 0 ? 4 : steps % (2 * sizeof(T)) == 0 ? 2 : 1;
  return {tile, column, most * static_cast<int>(sizeof(T))};
}

}  // namespace detail

// A tile of Layout on its way: every access has started, its elements come into registers, packed.
template <typename Layout, typename T>
struct TileOnItsWay {
  detail::Pairs<Layout, T, Layout::SIZE> pairs;
};

// The elements of a matrix tile from `column` on, as map and keep take them up: widened, 0 outside.
// Neighbours come in one access where alignment allows and all of the tile's columns are inside. Where
// registers are left for it the accesses start here, else when the elements are taken up.
template <typename Layout, typename T>
__device__ __forceinline__ auto load_tile(GmemTile<T> tile, int column) {
  asm volatile("" : "+r"(tile.first));  // see map_at: no addresses are kept from tile to tile
  const auto there = detail::in_memory<Layout>(tile, column);
  if constexpr (detail::leaves_registers<Layout, T>) {
    TileOnItsWay<Layout, T> result;
    result.pairs.load(0, there);
    return result;
  } else {
    return there;
  }
}

// The same of an output's elements behind the loop over keys, from a matrix tile's first column on: they
// stay in memory until they are taken up.
template <typename Layout, typename T>
__device__ __forceinline__ TileInMemory<Layout, T> load_output(const GmemTile<T>& tile) {
  return detail::in_memory<Layout>(tile, 0);
}

}  // namespace cubridge
