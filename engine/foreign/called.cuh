// What a page needs that calls someone's launcher on a GPU: tensors as the launcher takes them, its
// status, and what `torch/extension.h` asks of whoever calls. The page includes the source first.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <map>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace cubridge {

using f16 = __half;
using bf16 = __nv_bfloat16;

// Address and strides in elements, outermost dimension first.
struct TensorArg {
  void* data;
  long long stride[4];
};

// Whether elements lie one after the other, from 16 bytes on.
inline bool dense(const TensorArg& t, std::initializer_list<int> sizes) {
  long long step = 1;
  for (auto size = sizes.end(); size-- != sizes.begin(); step *= *size)
    if (*size > 1 && t.stride[size - sizes.begin()] != step) return false;
  return reinterpret_cast<uintptr_t>(t.data) % 16 == 0;
}

// A tensor's address as a pointer of whatever type a parameter has.
struct Pointer {
  void* to;
  template <class T> operator T*() const { return static_cast<T*>(to); }
};

// An output that the launcher returns, in the caller's memory.
struct Output {
  void* data;
  std::string type;
  long long elements, bytes;
};

struct Call {
  cudaStream_t stream = nullptr;
  std::vector<Output> outputs;
  size_t returned = 0;
};
inline Call call;  // the one under way
inline std::multimap<std::pair<cudaStream_t, size_t>, void*> free_memory;
inline std::map<void*, cudaStream_t> stream_of;  // of all memory, free or not

struct OutOfMemory : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline cudaError_t said(const std::exception& error, cudaError_t status) {
  fprintf(stderr, "the launcher: %s\n", error.what());
  return status;
}

// Calls the launcher; its own status where it gives one, else the runtime's.
template <class F> cudaError_t status_of(cudaStream_t stream, std::vector<Output> outputs, F launch) {
  call = {stream, std::move(outputs)};
  cudaError_t status = cudaSuccess;
  try {
    using Result = decltype(launch());
    if constexpr (std::is_same_v<Result, cudaError_t>) status = launch();
    else if constexpr (std::is_void_v<Result>) launch();
#ifdef CUBRIDGE_TORCH
    else at::returned(launch());
#else
    else (void)launch();
#endif
    if (call.returned != call.outputs.size()) throw std::runtime_error("it returned too little");
  } catch (const OutOfMemory& error) {
    status = said(error, cudaErrorMemoryAllocation);
  } catch (const std::exception& error) {
    status = said(error, cudaErrorInvalidValue);
  }
  cudaError_t last = cudaGetLastError();
  return status == cudaSuccess ? last : status;
}

}  // namespace cubridge

extern "C" {

inline cudaStream_t cubridge_stream() { return cubridge::call.stream; }

// Memory is kept from call to call of a stream, as PyTorch keeps it, until there is no more.
inline void* cubridge_allocate(size_t bytes) {
  using namespace cubridge;
  void* data = nullptr;
  if (auto found = free_memory.find({call.stream, bytes}); found != free_memory.end()) {
    data = found->second;
    free_memory.erase(found);
    return data;
  }
  if (cudaMalloc(&data, bytes) != cudaSuccess) {
    cudaGetLastError();  // said by what is thrown
    for (auto& [key, kept] : free_memory) {
      cudaFree(kept);
      stream_of.erase(kept);
    }
    free_memory.clear();
    if (cudaMalloc(&data, bytes) != cudaSuccess) {
      cudaGetLastError();
      throw OutOfMemory("no memory on the GPU");
    }
  }
  stream_of[data] = call.stream;
  return data;
}
inline void cubridge_release(void* data, size_t bytes) {
  cubridge::free_memory.emplace(std::pair(cubridge::stream_of[data], bytes), data);
}

inline void cubridge_returned(void* data, const char* type, const long long* sizes, int dims) {
  if (cubridge::call.returned == cubridge::call.outputs.size()) return;  // nobody asks for it
  const auto& output = cubridge::call.outputs[cubridge::call.returned++];
  long long elements = 1;
  for (int k = 0; k < dims; k++) elements *= sizes[k];
  if (output.type != type || output.elements != elements)
    throw std::runtime_error("it returned a tensor of another type or size than it is asked for");
  cudaMemcpyAsync(output.data, data, output.bytes, cudaMemcpyDeviceToDevice, cubridge::call.stream);
}

inline void cubridge_refuse(const char* what) { throw std::runtime_error(what); }

}  // extern "C"
