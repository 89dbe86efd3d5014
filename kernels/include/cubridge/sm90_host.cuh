// The host side of a Hopper kernel: tensor maps, the number of multiprocessors, and a launch that
// reports a tensor map which could not be made.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>
#include <cstdint>
#include <type_traits>

#include "args.cuh"
#include "sm90_async.cuh"

namespace cubridge {

// Multiprocessors of the current device; 1 where it cannot be asked (the launch then reports why).
inline int sm_count() {
  int device = 0;
  int count = 1;
  if (cudaGetDevice(&device) != cudaSuccess) return 1;
  if (cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) != cudaSuccess) {
    return 1;
  }
  return count;
}

// Bytes of L2 cache of the current device; 0 where it cannot be asked.
inline int l2_bytes() {
  int device = 0;
  int bytes = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return 0;
  if (cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, device) != cudaSuccess) return 0;
  return bytes;
}

// What a launch returns for a layout that the TMA cannot take. No other call in a launch returns it, and
// no running kernel leaves it behind, as it does cudaErrorMisalignedAddress.
constexpr cudaError_t LAYOUT_REFUSED = cudaErrorInvalidPitchValue;

namespace detail {

// One tensor map of a (batch, head, row, column) tensor of two-byte elements, for boxes of 64 columns
// and `height` rows; see tensor_map for the status.
//
// In a sliding one the rows are two dimensions of one stride: coordinates (p, r) are row r + p, and a box
// has what of it lies in the `height` rows from row r on. So p, which may be negative, is where a box
// begins beside row r, and the rows that it has end or begin wherever r says. A box that begins at a
// negative coordinate touches a map's start (H200), so all maps start at the tensor.
template <typename T>
int encode(CUtensorMap& map, const TensorArg& tensor, const int (&dims)[4], int height,
           bool sliding = false) {
  static_assert(sizeof(T) == 2, "tensor maps are made for f16 and bf16");
  for (int size : dims) {
    if (size == 0) return cudaSuccess;
  }
  using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*,
                              const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                              const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                              CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  void* found = nullptr;
  cudaDriverEntryPointQueryResult query = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t status = cudaGetDriverEntryPointByVersion(
      "cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &query);
  if (status != cudaSuccess) return status;
  if (query != cudaDriverEntryPointSuccess) return cudaErrorSymbolNotFound;

  cuuint64_t sizes[5];
  cuuint64_t strides[4];
  int rank = 0;
  bool legal = reinterpret_cast<uintptr_t>(tensor.data) % 16 == 0 &&
               (tensor.stride[3] == 1 || dims[3] == 1);
  sizes[rank++] = static_cast<cuuint64_t>(dims[3]);
  for (int d = 2; d >= 0; --d) {
    // A dimension of size 1 is never stepped: its stride says nothing.
    const long long bytes =
        dims[d] == 1 ? 16 : tensor.stride[d] * static_cast<long long>(sizeof(T));
    legal = legal && bytes % 16 == 0 && bytes >= 0 && bytes < (1ll << 40);
    if (d == 2 && sliding) {
      strides[rank - 1] = static_cast<cuuint64_t>(bytes);
      sizes[rank++] = static_cast<cuuint64_t>(height);
    }
    strides[rank - 1] = static_cast<cuuint64_t>(bytes);
    sizes[rank++] = static_cast<cuuint64_t>(dims[d]);
  }
  if (!legal) return LAYOUT_REFUSED;
  const cuuint32_t box[5] = {64, static_cast<cuuint32_t>(height), 1, 1, 1};
  const cuuint32_t steps[5] = {1, 1, 1, 1, 1};
  constexpr CUtensorMapDataType TYPE = std::is_same_v<T, bf16> ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                               : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  const CUresult encoded = reinterpret_cast<Encode>(found)(
      &map, TYPE, static_cast<cuuint32_t>(rank), tensor.data, sizes, strides, box, steps,
      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return encoded == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace detail

// A tensor map over a (batch, head, row, column) tensor of two-byte elements, for boxes of ROWS x
// COLS with the 128-byte swizzle (moved as panels of 64 columns). Status: LAYOUT_REFUSED where
// the TMA cannot take the layout: it needs contiguous columns, and a start and strides that are
// multiples of 16 bytes. A tensor without elements gets an empty map, which must not be used.
template <typename T, int ROWS, int COLS>
TensorMap tensor_map(const TensorArg& tensor, int batches, int heads, int rows, int columns) {
  static_assert(ROWS <= 256 && COLS % 64 == 0, "a box has at most 256 rows, in panels of 64 columns");
  TensorMap result{};
  result.status = detail::encode<T>(result.map, tensor, {batches, heads, rows, columns}, ROWS);
  return result;
}

// tensor_map for tma_load_rows, which takes a range of a box's rows.
template <typename T, int ROWS, int COLS>
RowMap row_map(const TensorArg& tensor, int batches, int heads, int rows, int columns) {
  static_assert(ROWS <= 256 && COLS % 64 == 0, "a box has at most 256 rows, in panels of 64 columns");
  RowMap result{};
  const int dims[4] = {batches, heads, rows, columns};
  result.status = detail::encode<T>(result.sliding, tensor, dims, ROWS, true);
  if (result.status == cudaSuccess) result.status = detail::encode<T>(result.eights, tensor, dims, 8);
  if (result.status == cudaSuccess) result.status = detail::encode<T>(result.ones, tensor, dims, 1);
  return result;
}

namespace detail {
inline int map_status(const TensorMap& map) { return map.status; }
inline int map_status(const RowMap& map) { return map.status; }
template <typename Other>
int map_status(const Other&) {
  return cudaSuccess;
}
}  // namespace detail

// run (args.cuh) for a kernel whose second parameter is a tensor map: launches nothing and reports
// the first tensor map that could not be made.
template <auto Kernel, typename First, typename... Params>
cudaError_t run(dim3 grid, int threads, int bytes, cudaStream_t stream, const First& first,
                const TensorMap& map, const Params&... params) {
  int status = map.status;
  ((status = status != cudaSuccess ? status : detail::map_status(params)), ...);
  if (status != cudaSuccess) return static_cast<cudaError_t>(status);
  status = cudaFuncSetAttribute(Kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (status != cudaSuccess) return static_cast<cudaError_t>(status);
  Kernel<<<grid, threads, bytes, stream>>>(first, map, params...);
  return cudaGetLastError();
}

}  // namespace cubridge
