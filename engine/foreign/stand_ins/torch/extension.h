// What launchers use of PyTorch's C++ interface, over the CUDA runtime or its recorder: tensors with
// an address, dimensions and an element type. All memory is the device's. What is not here does not
// compile, and the compiler names it.
#pragma once
#define CUBRIDGE_TORCH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

// Of whoever calls the launcher: what it returns; memory of tensors, given back with the last of
// them; the stream of the call.
extern "C" void cubridge_returned(void* address, const char* type, const long long* sizes, int dims);
extern "C" void* cubridge_allocate(size_t bytes);
extern "C" void cubridge_release(void* address, size_t bytes);
extern "C" cudaStream_t cubridge_stream();

namespace at {

using Half = __half;
using BFloat16 = __nv_bfloat16;

enum class ScalarType { Float, Double, Half, BFloat16, Int, Long, Byte, Char, Bool };
constexpr auto kFloat = ScalarType::Float, kFloat32 = ScalarType::Float,
               kDouble = ScalarType::Double, kFloat64 = ScalarType::Double,
               kHalf = ScalarType::Half, kFloat16 = ScalarType::Half,
               kBFloat16 = ScalarType::BFloat16, kInt = ScalarType::Int, kInt32 = ScalarType::Int,
               kLong = ScalarType::Long, kInt64 = ScalarType::Long, kByte = ScalarType::Byte,
               kUInt8 = ScalarType::Byte, kInt8 = ScalarType::Char, kBool = ScalarType::Bool;

struct Element {
  ScalarType type;
  const char* name;
  int bytes;
};
inline const std::vector<Element>& elements() {
  static const std::vector<Element> all = {
      {kFloat, "f32", 4}, {kDouble, "f64", 8}, {kHalf, "f16", 2},  {kBFloat16, "bf16", 2},
      {kInt, "i32", 4},   {kLong, "i64", 8},   {kByte, "u8", 1},   {kInt8, "i8", 1},
      {kBool, "u8", 1}};
  return all;
}
inline const Element& element(ScalarType type) {
  for (const auto& one : elements())
    if (one.type == type) return one;
  throw std::runtime_error("an element type that is not known");
}

template <class T> struct ElementOf;
template <> struct ElementOf<float> { static constexpr auto type = kFloat; };
template <> struct ElementOf<double> { static constexpr auto type = kDouble; };
template <> struct ElementOf<__half> { static constexpr auto type = kHalf; };
template <> struct ElementOf<__nv_bfloat16> { static constexpr auto type = kBFloat16; };
template <> struct ElementOf<int> { static constexpr auto type = kInt; };
template <> struct ElementOf<int64_t> { static constexpr auto type = kLong; };
template <> struct ElementOf<unsigned char> { static constexpr auto type = kByte; };
template <> struct ElementOf<signed char> { static constexpr auto type = kInt8; };
template <> struct ElementOf<bool> { static constexpr auto type = kBool; };

enum DeviceType { kCPU, kCUDA };
struct Device {
  DeviceType kind;
  int number;
  Device(DeviceType kind = kCUDA, int number = 0) : kind(kind), number(number) {}
  bool is_cuda() const { return true; }
  int index() const { return number; }
  bool operator==(const Device& other) const { return number == other.number; }
  bool operator!=(const Device& other) const { return !(*this == other); }
};

struct TensorOptions {
  ScalarType element = kFloat;
  TensorOptions() = default;
  TensorOptions(ScalarType type) : element(type) {}
  TensorOptions dtype(ScalarType type) const { return TensorOptions(type); }
  TensorOptions device(Device) const { return *this; }
  TensorOptions device(DeviceType, int = 0) const { return *this; }
  TensorOptions requires_grad(bool) const { return *this; }
};

using IntArrayRef = std::vector<int64_t>;

class Tensor {
 public:
  Tensor() = default;
  Tensor(void* data, IntArrayRef sizes, ScalarType type)
      : data_(data), sizes_(std::move(sizes)), type_(type), strides_(sizes_.size()) {
    int64_t step = 1;
    for (size_t k = sizes_.size(); k-- > 0; step *= sizes_[k]) strides_[k] = step;
  }
  // ADDRESS,TYPE,SIZE,SIZE,... as the program's argument has it.
  static Tensor described(const char* text) {
    std::stringstream words(text);
    std::string address, type, size;
    std::getline(words, address, ',');
    std::getline(words, type, ',');
    IntArrayRef sizes;
    while (std::getline(words, size, ',')) sizes.push_back(std::stoll(size));
    for (const auto& one : elements())
      if (type == one.name)
        return Tensor(reinterpret_cast<void*>(std::stoull(address)), sizes, one.type);
    throw std::runtime_error("an element type that is not known: " + type);
  }

  bool defined() const { return data_ != nullptr; }
  int64_t dim() const { return sizes_.size(); }
  int64_t ndimension() const { return dim(); }
  int64_t size(int64_t k) const { return sizes_.at(k < 0 ? k + dim() : k); }
  int64_t stride(int64_t k) const { return strides_.at(k < 0 ? k + dim() : k); }
  const IntArrayRef& sizes() const { return sizes_; }
  const IntArrayRef& strides() const { return strides_; }
  int64_t numel() const {
    int64_t out = 1;
    for (auto n : sizes_) out *= n;
    return out;
  }
  int64_t element_size() const { return element(type_).bytes; }
  ScalarType scalar_type() const { return type_; }
  ScalarType dtype() const { return type_; }
  Device device() const { return Device(); }
  int get_device() const { return 0; }
  bool is_cuda() const { return true; }
  TensorOptions options() const { return TensorOptions(type_); }
  bool is_contiguous() const { return strides_ == Tensor(data_, sizes_, type_).strides_; }
  Tensor contiguous() const {
    if (!is_contiguous()) throw std::runtime_error("contiguous() of a tensor that is not");
    return *this;
  }
  Tensor to(Device) const { return *this; }
  Tensor to(DeviceType) const { return *this; }
  Tensor to(TensorOptions options) const { return to(options.element); }
  Tensor to(ScalarType type) const {
    if (type != type_) throw std::runtime_error("to() of another element type");
    return *this;
  }
  Tensor cuda() const { return *this; }
  Tensor view(IntArrayRef sizes) const {
    int64_t known = 1;
    for (auto n : sizes) known *= n < 0 ? 1 : n;
    for (auto& n : sizes) n = n < 0 ? numel() / known : n;
    Tensor out(contiguous().data_, sizes, type_);
    out.held_ = held_;
    return out;
  }
  Tensor reshape(IntArrayRef sizes) const { return view(sizes); }
  Tensor transpose(int64_t a, int64_t b) const {
    Tensor out = *this;
    a = a < 0 ? a + dim() : a;
    b = b < 0 ? b + dim() : b;
    std::swap(out.sizes_.at(a), out.sizes_.at(b));
    std::swap(out.strides_.at(a), out.strides_.at(b));
    return out;
  }
  Tensor& zero_() {
    cudaMemsetAsync(contiguous().data_, 0, numel() * element_size(), cubridge_stream());
    return *this;
  }
  Tensor& fill_(double value) {
    std::vector<unsigned char> bytes(numel() * element_size());
    for (int64_t k = 0; k < numel(); k++) put(&bytes[k * element_size()], value);
    cudaMemcpy(contiguous().data_, bytes.data(), bytes.size(), cudaMemcpyHostToDevice);
    return *this;
  }
  void* data_ptr() const { return data_; }
  template <class T> T* data_ptr() const {
    if (ElementOf<std::remove_const_t<T>>::type != type_)
      throw std::runtime_error(std::string("data_ptr of another element type than the tensor's, ") +
                               element(type_).name + ": say --dtype");
    return static_cast<T*>(data_);
  }
  template <class T> T* mutable_data_ptr() const { return data_ptr<T>(); }
  template <class T> const T* const_data_ptr() const { return data_ptr<T>(); }

 private:
  void* data_ = nullptr;
  IntArrayRef sizes_;
  ScalarType type_ = kFloat;
  IntArrayRef strides_;
  std::shared_ptr<void> held_;  // memory of its own
  friend Tensor empty(IntArrayRef sizes, TensorOptions options);

  template <class T> static void copied(unsigned char* at, T value) { memcpy(at, &value, sizeof value); }
  void put(unsigned char* at, double value) const {
    switch (type_) {
      case kFloat: copied(at, static_cast<float>(value)); break;
      case kDouble: copied(at, value); break;
      case kHalf: copied(at, __float2half(value)); break;
      case kBFloat16: copied(at, __float2bfloat16(value)); break;
      case kInt: copied(at, static_cast<int>(value)); break;
      case kLong: copied(at, static_cast<int64_t>(value)); break;
      default: copied(at, static_cast<unsigned char>(value));
    }
  }
};

inline Tensor empty(IntArrayRef sizes, TensorOptions options = {}) {
  int64_t bytes = element(options.element).bytes;
  for (auto n : sizes) bytes *= n;
  void* data = cubridge_allocate(bytes);
  Tensor out(data, sizes, options.element);
  out.held_ = std::shared_ptr<void>(data, [bytes](void* p) { cubridge_release(p, bytes); });
  return out;
}
inline Tensor zeros(IntArrayRef sizes, TensorOptions options = {}) {
  return empty(sizes, options).zero_();
}
inline Tensor full(IntArrayRef sizes, double value, TensorOptions options = {}) {
  return empty(sizes, options).fill_(value);
}
inline Tensor ones(IntArrayRef sizes, TensorOptions options = {}) { return full(sizes, 1, options); }
inline Tensor empty_like(const Tensor& t) { return empty(t.sizes(), t.options()); }
inline Tensor empty_like(const Tensor& t, TensorOptions o) { return empty(t.sizes(), o); }
inline Tensor zeros_like(const Tensor& t) { return zeros(t.sizes(), t.options()); }
inline Tensor full_like(const Tensor& t, double value) { return full(t.sizes(), value, t.options()); }

// What the launcher returned, for the record.
inline void returned(const Tensor& t) {
  if (!t.is_contiguous()) throw std::runtime_error("a returned tensor that is not contiguous");
  std::vector<long long> sizes(t.sizes().begin(), t.sizes().end());
  cubridge_returned(t.data_ptr(), element(t.scalar_type()).name, sizes.data(), sizes.size());
}
inline void returned(const std::vector<Tensor>& all) {
  for (const auto& t : all) returned(t);
}
template <class... T> void returned(const std::tuple<T...>& all) {
  std::apply([](const auto&... t) { (returned(t), ...); }, all);
}
template <class T> void returned(const T&) {}

namespace cuda {
struct Stream {
  cudaStream_t stream() const { return cubridge_stream(); }
  operator cudaStream_t() const { return cubridge_stream(); }
};
inline Stream getCurrentCUDAStream(int = 0) { return {}; }
struct CUDAGuard {
  template <class T> explicit CUDAGuard(T) {}
};
inline cudaDeviceProp* getCurrentDeviceProperties() {
  static cudaDeviceProp properties;
  cudaGetDeviceProperties(&properties, 0);
  return &properties;
}
}  // namespace cuda

template <class... T> [[noreturn]] void failed(const char* what, const T&... more) {
  std::ostringstream text;
  if constexpr (sizeof...(T) == 0) text << what << " does not hold";
  ((text << more), ...);
  throw std::runtime_error(text.str());
}

// A module of Python functions: nobody asks for them here.
struct Module {
  template <class... T> Module& def(T&&...) { return *this; }
};

}  // namespace at

namespace c10 {
using at::BFloat16;
using at::Device;
using at::Half;
using at::ScalarType;
template <class T> using optional = std::optional<T>;
constexpr auto nullopt = std::nullopt;
namespace cuda = at::cuda;
}  // namespace c10

namespace torch {
using namespace at;
using Dtype = at::ScalarType;
inline TensorOptions dtype(ScalarType type) { return TensorOptions(type); }
inline TensorOptions device(Device) { return {}; }
}  // namespace torch

#define TORCH_CHECK(condition, ...) \
  do { if (!(condition)) at::failed(#condition, ##__VA_ARGS__); } while (0)
#define AT_ASSERTM TORCH_CHECK
#define TORCH_INTERNAL_ASSERT TORCH_CHECK
#define C10_CUDA_CHECK(call) \
  do { if ((call) != cudaSuccess) at::failed(#call); } while (0)
#define AT_CUDA_CHECK C10_CUDA_CHECK
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
#define TORCH_EXTENSION_NAME extension
#define PYBIND11_MODULE(name, m) [[maybe_unused]] static void name##_functions(at::Module& m)
