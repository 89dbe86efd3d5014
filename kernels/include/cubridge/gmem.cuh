// Views of global memory: any strides, 64-bit offsets, and nothing outside the shape. A tile is a
// part of a view whose rows may lie outside: who reads it gets 0 there, who writes it writes nothing.
#pragma once

#include "args.cuh"
#include "scalar.cuh"

namespace cubridge {

namespace detail {

// What an index outside a vector or a table reads.
static __device__ const unsigned long long OUTSIDE = 0;

// The element at `from` if `inside`, else 0, without a branch, so that the loads of a whole tile stay
// one block of code; nothing writes the tensor while the kernel runs. Of a vector or a table many of
// a thread's elements read one entry: the address is chosen and the load plain, so that the compiler
// loads it once, before a loop if it can. A dense tensor has an entry for every element: there the
// load itself is predicated. (PTX ISA: ld.global.nc)
template <int RANK, typename T>
__device__ __forceinline__ T load_if(const T* from, bool inside) {
  if constexpr (std::is_same_v<T, bool>) {
    const void* address = inside ? static_cast<const void*>(from) : &OUTSIDE;
    return __ldg(static_cast<const unsigned char*>(address)) != 0;
  } else if constexpr (RANK <= 2) {
    const void* address = inside ? static_cast<const void*>(from) : &OUTSIDE;
    return __ldg(static_cast<const T*>(address));
  } else if constexpr (sizeof(T) == 2) {
    unsigned short bits;
    asm("{\n .reg .pred p;\n setp.ne.u32 p, %2, 0;\n mov.b16 %0, 0;\n"
        " @p ld.global.nc.b16 %0, [%1];\n}"
        : "=h"(bits)
        : "l"(from), "r"(static_cast<unsigned>(inside)));
    return reinterpret_cast<const T&>(bits);
  } else {
    unsigned bits;
    asm("{\n .reg .pred p;\n setp.ne.u32 p, %2, 0;\n mov.b32 %0, 0;\n"
        " @p ld.global.nc.b32 %0, [%1];\n}"
        : "=r"(bits)
        : "l"(from), "r"(static_cast<unsigned>(inside)));
    return reinterpret_cast<const T&>(bits);
  }
}

}  // namespace detail

// Rows `first`, `first + 1`, ... of a matrix in global memory. `base` is row 0, so that a row's
// offset is 64-bit and a row index outside [0, rows) is never turned into an address.
template <typename T>
struct GmemTile {
  T* base;
  long long row_stride;
  long long column_stride;
  int first;
  int rows;
  int columns;
  bool vectors;  // see Gmem

  __device__ __forceinline__ bool has(int row) const {
    return static_cast<unsigned>(first + row) < static_cast<unsigned>(rows);
  }
  __device__ __forceinline__ T* row(int row) const { return base + (first + row) * row_stride; }
};

// Elements `first`, `first + 1`, ... of a vector in global memory.
template <typename T>
struct GmemVector {
  T* base;
  long long stride;
  int first;
  int size;

  __device__ __forceinline__ bool has(int index) const {
    return static_cast<unsigned>(first + index) < static_cast<unsigned>(size);
  }
  __device__ __forceinline__ T* at(int index) const { return base + (first + index) * stride; }
};

// A tensor of rank RANK. `T` is f16, bf16, float, int or bool (one byte, 0 or 1).
template <typename T, int RANK>
struct Gmem {
  T* data;
  long long stride[RANK];
  int shape[RANK];
  bool vectors;  // every row is contiguous and starts on 16 bytes: 16-byte accesses are legal

  // The element at `index...`, widened; 0 where any index is outside the shape.
  template <typename... Index>
  __device__ __forceinline__ auto operator()(Index... index) const {
    static_assert(sizeof...(Index) == RANK, "one index per dimension");
    const int indices[RANK] = {static_cast<int>(index)...};
    bool inside = true;
    long long offset = 0;
#pragma unroll
    for (int d = 0; d < RANK; ++d) {
      inside &= static_cast<unsigned>(indices[d]) < static_cast<unsigned>(shape[d]);
      offset += indices[d] * stride[d];
    }
    return widen(detail::load_if<RANK>(data + offset, inside));
  }

  // `tile(outer..., first)`: with RANK - 1 indices the matrix of the last two dimensions from row
  // `first` on, with RANK indices the vector of the last dimension from element `first` on.
  template <typename... Index>
  __device__ __forceinline__ auto tile(Index... index) const {
    constexpr int COUNT = sizeof...(Index);
    static_assert(COUNT == RANK || COUNT + 1 == RANK, "a tile is a matrix or a vector of the view");
    const int indices[COUNT] = {static_cast<int>(index)...};
    long long offset = 0;
#pragma unroll
    for (int d = 0; d < COUNT - 1; ++d) offset += indices[d] * stride[d];
    if constexpr (COUNT == RANK) {
      return GmemVector<T>{data + offset, stride[RANK - 1], indices[COUNT - 1], shape[RANK - 1]};
    } else {
      return GmemTile<T>{data + offset,      stride[RANK - 2], stride[RANK - 1],
                         indices[COUNT - 1], shape[RANK - 2],  shape[RANK - 1],
                         vectors};
    }
  }
};

// A view of a tensor argument: `gmem<T>(args.k, args.B, args.Hkv, args.Nk, D)`.
template <typename T, typename... Size>
__device__ __forceinline__ auto gmem(const TensorArg& tensor, Size... size) {
  constexpr int RANK = sizeof...(Size);
  static_assert(1 <= RANK && RANK <= 4, "a tensor argument has one to four dimensions");
  Gmem<T, RANK> view{static_cast<T*>(tensor.data), {}, {static_cast<int>(size)...}, false};
#pragma unroll
  for (int d = 0; d < RANK; ++d) view.stride[d] = tensor.stride[d];

  // Decided once per view, without branches; a dimension of size 1 has no stride.
  constexpr int PER_VECTOR = 16 / sizeof(T);
  view.vectors = (reinterpret_cast<unsigned long long>(tensor.data) % 16 == 0) &
                 (view.stride[RANK - 1] == 1) & (view.shape[RANK - 1] % PER_VECTOR == 0);
#pragma unroll
  for (int d = 0; d < RANK - 1; ++d) {
    view.vectors &= (view.shape[d] == 1) | (view.stride[d] % PER_VECTOR == 0);
  }
  return view;
}

}  // namespace cubridge
