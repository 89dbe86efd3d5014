// A CUDA runtime that launches nothing: it writes down, as one JSON object a line, what a launcher
// asks of the GPU. Linked with -cudart none, it takes the place of the CUDA runtime library.
//
// CUBRIDGE_RECORD: the file to write. CUBRIDGE_PARAMETERS: a file with a line for each kernel: its
// name, then offset:bytes of each parameter. A call that is not here does not link, and is refused
// by its name.

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace {

using Parameters = std::vector<std::pair<size_t, size_t>>;

// Device memory that the launcher allocates: addresses that only the record gives a meaning.
constexpr uint64_t kFirst = (uint64_t(1) << 40) + (uint64_t(1) << 35);
constexpr uint64_t kWindow = uint64_t(1) << 36;

std::map<const void*, std::string>& kernel_names() {
  static auto* names = new std::map<const void*, std::string>;  // registered before main's statics
  return *names;
}

// A name without the digits that nvcc gives an anonymous namespace: they are of one build, and
// `compile.py` takes them out of the PTX likewise.
std::string of_every_build(std::string name) {
  for (const std::string mark : {"_GLOBAL__N__", "_INTERNAL_"})
    for (size_t at = name.find(mark); at != std::string::npos; at = name.find(mark, at)) {
      at += mark.size();
      if (strspn(&name[at], "0123456789abcdef") >= 8) name.replace(at, 8, "00000000");
    }
  return name;
}

std::map<const void*, size_t>& symbol_bytes() {
  static auto* bytes = new std::map<const void*, size_t>;
  return *bytes;
}

struct Configuration {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
};
std::vector<Configuration> configurations;

uint64_t allocations;  // the number of the next one
std::map<const void*, int> dynamic_shared;  // what cudaFuncSetAttribute allowed, bytes

FILE* record() {
  static FILE* file = fopen(getenv("CUBRIDGE_RECORD"), "w");
  return file;
}

void hexadecimal(const void* data, size_t bytes) {
  const auto* byte = static_cast<const unsigned char*>(data);
  for (size_t i = 0; i < bytes; i++) fprintf(record(), "%02x", byte[i]);
}

const std::map<std::string, Parameters>& parameters() {
  static const auto known = [] {
    std::map<std::string, Parameters> out;
    std::ifstream file(getenv("CUBRIDGE_PARAMETERS"));
    std::string line;
    while (std::getline(file, line)) {
      std::istringstream words(line);
      std::string name;
      words >> name;
      size_t offset, bytes;
      char colon;
      Parameters list;
      while (words >> offset >> colon >> bytes) list.push_back({offset, bytes});
      out[name] = list;
    }
    return out;
  }();
  return known;
}

void launch(const void* function, dim3 grid, dim3 block, void** arguments, size_t shared,
            cudaStream_t stream, bool cooperative = false) {
  const std::string& name = kernel_names()[function];
  auto found = parameters().find(name);
  size_t total = 0;
  if (found != parameters().end())
    for (auto [offset, bytes] : found->second) total = std::max(total, offset + bytes);
  std::vector<unsigned char> block_of(total);
  if (found != parameters().end())
    for (size_t i = 0; i < found->second.size(); i++)
      memcpy(&block_of[found->second[i].first], arguments[i], found->second[i].second);
  fprintf(record(),
          "{\"event\": \"launch\", \"kernel\": \"%s\", \"grid\": [%u, %u, %u], "
          "\"block\": [%u, %u, %u], \"shared\": %zu, \"allowed\": %d, \"stream\": %zu, "
          "\"cooperative\": %s, \"parameters\": \"",
          name.c_str(), grid.x, grid.y, grid.z, block.x, block.y, block.z, shared,
          dynamic_shared[function], reinterpret_cast<size_t>(stream),
          cooperative ? "true" : "false");
  hexadecimal(block_of.data(), block_of.size());
  fprintf(record(), "\"}\n");
  fflush(record());
}

void refuse(const char* what) {
  fprintf(record(), "{\"event\": \"refused\", \"call\": \"%s\"}\n", what);
  fflush(record());
}

// What the driver refuses, in words.
void invalid(const std::string& words) {
  fprintf(record(), "{\"event\": \"invalid\", \"words\": \"%s\"}\n", words.c_str());
  fflush(record());
}

}  // namespace

extern "C" {

void cubridge_refuse(const char* what) { refuse(what); }
void* cubridge_allocate(size_t bytes) {
  void* data = nullptr;
  cudaMalloc(&data, bytes);
  return data;
}
void cubridge_release(void* address, size_t) { cudaFree(address); }
// The next call of the launcher, whose allocations begin at this number.
void cubridge_call(const char* first) {
  fprintf(record(), "{\"event\": \"call\"}\n");
  allocations = strtoull(first, nullptr, 10);
}
cudaStream_t cubridge_stream() { return nullptr; }
void cubridge_returned(void* address, const char* type, const long long* sizes, int dims) {
  fprintf(record(), "{\"event\": \"returned\", \"address\": %llu, \"type\": \"%s\", \"sizes\": [",
          reinterpret_cast<unsigned long long>(address), type);
  for (int k = 0; k < dims; k++) fprintf(record(), k ? ", %lld" : "%lld", sizes[k]);
  fprintf(record(), "]}\n");
}

void** __cudaRegisterFatBinary(void*) {
  static void* handle;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 1; }
void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*,
                            dim3*, dim3*, int*) {
  kernel_names()[host] = of_every_build(name);
}
void __cudaRegisterVar(void**, char* host, char*, const char* name, int, size_t bytes, int, int) {
  kernel_names()[host] = of_every_build(name);
  symbol_bytes()[host] = bytes;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, CUstream_st* stream) {
  configurations.push_back({grid, block, shared, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  Configuration last = configurations.back();
  configurations.pop_back();
  *grid = last.grid;
  *block = last.block;
  *shared = last.shared;
  *static_cast<cudaStream_t*>(stream) = last.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               size_t shared, cudaStream_t stream) {
  launch(reinterpret_cast<const void*>(kernel), grid, block, arguments, shared, stream);
  return cudaSuccess;
}
cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                             size_t shared, cudaStream_t stream) {
  launch(function, grid, block, arguments, shared, stream);
  return cudaSuccess;
}
cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block,
                                        void** arguments, size_t shared, cudaStream_t stream) {
  launch(function, grid, block, arguments, shared, stream, true);
  return cudaSuccess;
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function,
                                void** arguments) {
  bool cooperative = false;
  for (unsigned i = 0; i < config->numAttrs; i++)
    if (config->attrs[i].id == cudaLaunchAttributeCooperative) {
      cooperative = config->attrs[i].val.cooperative;
    } else if (config->attrs[i].id == cudaLaunchAttributeClusterDimension) {
      const auto& cluster = config->attrs[i].val.clusterDim;
      if (cluster.x * cluster.y * cluster.z != 1) {
        refuse(("a cluster of " + std::to_string(cluster.x * cluster.y * cluster.z) + " blocks").c_str());
        return cudaErrorNotSupported;
      }
    }
  launch(function, config->gridDim, config->blockDim, arguments, config->dynamicSmemBytes,
         config->stream, cooperative);
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  uint64_t address = kFirst + kWindow * allocations++;
  *pointer = reinterpret_cast<void*>(address);
  fprintf(record(), "{\"event\": \"allocate\", \"address\": %llu, \"bytes\": %zu}\n",
          static_cast<unsigned long long>(address), bytes);
  return cudaSuccess;
}
cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t) {
  return cudaMalloc(pointer, bytes);
}
cudaError_t cudaFree(void* pointer) {
  if (pointer)
    fprintf(record(), "{\"event\": \"free\", \"address\": %llu}\n",
            reinterpret_cast<unsigned long long>(pointer));
  return cudaSuccess;
}
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t) { return cudaFree(pointer); }
cudaError_t cudaMemset(void* pointer, int value, size_t bytes) {
  fprintf(record(), "{\"event\": \"fill\", \"address\": %llu, \"value\": %d, \"bytes\": %zu}\n",
          reinterpret_cast<unsigned long long>(pointer), value & 255, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* pointer, int value, size_t bytes, cudaStream_t) {
  return cudaMemset(pointer, value, bytes);
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (kind == cudaMemcpyHostToDevice) {
    fprintf(record(), "{\"event\": \"upload\", \"address\": %llu, \"data\": \"",
            reinterpret_cast<unsigned long long>(to));
    hexadecimal(from, bytes);
    fprintf(record(), "\"}\n");
    return cudaSuccess;
  }
  if (kind == cudaMemcpyDeviceToDevice) {
    fprintf(record(), "{\"event\": \"copy\", \"address\": %llu, \"from\": %llu, \"bytes\": %zu}\n",
            reinterpret_cast<unsigned long long>(to), reinterpret_cast<unsigned long long>(from),
            bytes);
    return cudaSuccess;
  }
  // What the kernel computes is not known while its launch is recorded.
  refuse("cudaMemcpy from the device");
  return cudaErrorNotSupported;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t) {
  return cudaMemcpy(to, from, bytes, kind);
}
cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                         size_t width, size_t height, cudaMemcpyKind kind) {
  for (size_t row = 0; row < height; row++) {
    cudaError_t done = cudaMemcpy(static_cast<char*>(to) + row * to_pitch,
                                  static_cast<const char*>(from) + row * from_pitch, width, kind);
    if (done != cudaSuccess) return done;
  }
  return cudaSuccess;
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t) {
  return cudaMemcpy2D(to, to_pitch, from, from_pitch, width, height, kind);
}

cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes, size_t offset,
                               cudaMemcpyKind kind) {
  if (kind != cudaMemcpyHostToDevice && kind != cudaMemcpyDefault) {
    refuse("cudaMemcpyToSymbol from the device");
    return cudaErrorNotSupported;
  }
  fprintf(record(),
          "{\"event\": \"symbol\", \"name\": \"%s\", \"has\": %zu, \"offset\": %zu, \"data\": \"",
          kernel_names()[symbol].c_str(), symbol_bytes()[symbol], offset);
  hexadecimal(from, bytes);
  fprintf(record(), "\"}\n");
  return cudaSuccess;
}
cudaError_t cudaMemcpyToSymbolAsync(const void* symbol, const void* from, size_t bytes,
                                    size_t offset, cudaMemcpyKind kind, cudaStream_t) {
  return cudaMemcpyToSymbol(symbol, from, bytes, offset, kind);
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) dynamic_shared[function] = value;
  return cudaSuccess;
}
cudaError_t cudaFuncSetCacheConfig(const void*, cudaFuncCache) { return cudaSuccess; }
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  memset(attributes, 0, sizeof *attributes);
  attributes->maxThreadsPerBlock = 1024;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, size_t) {
  *blocks = 1;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int,
                                                                   size_t, unsigned) {
  *blocks = 1;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, const void*, const cudaLaunchConfig_t*) {
  *clusters = 4;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
// A small card: four multiprocessors make persistent kernels take several pieces of work each.
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount: *value = 4; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = 48 << 10; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = 227 << 10; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = 228 << 10; break;
    case cudaDevAttrComputeCapabilityMajor: *value = atoi(getenv("CUBRIDGE_ARCH")) / 10; break;
    case cudaDevAttrComputeCapabilityMinor: *value = atoi(getenv("CUBRIDGE_ARCH")) % 10; break;
    case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    default: *value = 0;
  }
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  memset(properties, 0, sizeof *properties);
  strcpy(properties->name, "recorder");
  cudaDeviceGetAttribute(&properties->multiProcessorCount, cudaDevAttrMultiProcessorCount, 0);
  properties->major = atoi(getenv("CUBRIDGE_ARCH")) / 10;
  properties->minor = atoi(getenv("CUBRIDGE_ARCH")) % 10;
  properties->sharedMemPerBlock = 48 << 10;
  properties->sharedMemPerBlockOptin = 227 << 10;
  properties->sharedMemPerMultiprocessor = 228 << 10;
  properties->maxThreadsPerBlock = 1024;
  properties->warpSize = 32;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaPeekAtLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "no error"; }
const char* cudaGetErrorName(cudaError_t) { return "cudaSuccess"; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  static size_t count = 0;
  *stream = reinterpret_cast<cudaStream_t>(++count);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return cudaStreamCreate(stream);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
// Times are not measured: a program that asks for them gets none.
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = nullptr;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return cudaEventCreate(event); }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 0;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaDeviceReset() { return cudaSuccess; }
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  memset(attributes, 0, sizeof *attributes);
  attributes->type = cudaMemoryTypeDevice;
  attributes->devicePointer = const_cast<void*>(pointer);
  return cudaSuccess;
}

CUresult cuGetErrorString(CUresult, const char** text) {
  *text = "no error";
  return CUDA_SUCCESS;
}
// What the driver asks of a tensor map (CUDA Driver API, cuTensorMapEncodeTiled), in words.
static std::string wrong_map(CUtensorMapDataType type, cuuint32_t rank, uint64_t address,
                             const cuuint64_t* sizes, const cuuint64_t* strides,
                             const cuuint32_t* box, CUtensorMapSwizzle swizzle,
                             CUtensorMapFloatOOBfill fill) {
  // Bytes of an element by its type, and of a swizzle's row; floats are known to the fill.
  constexpr int kBytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4}, kRow[] = {0, 32, 64, 128};
  if (type >= sizeof kBytes / sizeof *kBytes || swizzle >= sizeof kRow / sizeof *kRow)
    return "";  // refused where it is read
  if (rank < 1 || rank > 5) return std::to_string(rank) + " dimensions, of 1 to 5";
  if (address % 16) return "an address that is no multiple of 16 bytes";
  for (unsigned i = 0; i < rank; i++) {
    std::string at = " in dimension " + std::to_string(i);
    if (sizes[i] < 1 || sizes[i] > uint64_t(1) << 32)
      return "a size of " + std::to_string(sizes[i]) + at + ", of 1 to 2^32";
    if (i + 1 < rank && (strides[i] % 16 || strides[i] >= uint64_t(1) << 40))
      return "a stride of " + std::to_string(strides[i]) + " bytes" + at +
             ", of multiples of 16 below 2^40";
    if (box[i] < 1 || box[i] > 256)
      return "a box of " + std::to_string(box[i]) + " elements" + at + ", of 1 to 256";
  }
  int inner = box[0] * kBytes[type];
  if (inner % 16) return "a box whose rows are " + std::to_string(inner) + " bytes, no multiple of 16";
  if (kRow[swizzle] && inner > kRow[swizzle])
    return "a box whose rows are " + std::to_string(inner) + " bytes, with a swizzle of " +
           std::to_string(kRow[swizzle]);
  if (fill && type <= CU_TENSOR_MAP_DATA_TYPE_INT64) return "NaN as the fill of whole numbers";
  return "";
}
// The layout of engine/ptx/tensor_maps.py.
CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                                void* address, const cuuint64_t* sizes, const cuuint64_t* strides,
                                const cuuint32_t* box, const cuuint32_t* steps,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill fill) {
  auto* out = reinterpret_cast<unsigned char*>(map);
  memset(out, 0, sizeof *map);
  for (unsigned i = 0; i < rank; i++)
    if (steps[i] != 1 || interleave != CU_TENSOR_MAP_INTERLEAVE_NONE) {
      refuse("a tensor map with steps or interleaving");
      return CUDA_ERROR_NOT_SUPPORTED;
    }
  uint64_t start = reinterpret_cast<uint64_t>(address);
  std::string wrong = wrong_map(type, rank, start, sizes, strides, box, swizzle, fill);
  if (!wrong.empty()) {
    invalid("a tensor map with " + wrong);
    return CUDA_ERROR_INVALID_VALUE;
  }
  memcpy(out, "CBTENMAP", 8);
  memcpy(out + 8, &start, 8);
  out[16] = type;
  out[17] = rank;
  out[18] = swizzle;
  out[20] = fill;
  for (unsigned i = 0; i < rank; i++) {
    uint32_t size = sizes[i];
    uint16_t side = box[i];
    memcpy(out + 24 + 4 * i, &size, 4);
    if (i + 1 < rank) memcpy(out + 44 + 8 * i, &strides[i], 8);
    memcpy(out + 76 + 2 * i, &side, 2);
    out[86 + i] = 1;
  }
  return CUDA_SUCCESS;
}
static cudaError_t entry_point(const char* name, void** function,
                               cudaDriverEntryPointQueryResult* found) {
  bool known = !strcmp(name, "cuTensorMapEncodeTiled");
  *function = known ? reinterpret_cast<void*>(cuTensorMapEncodeTiled) : nullptr;
  if (found) *found = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  if (!known) refuse(name);
  return known ? cudaSuccess : cudaErrorSymbolNotFound;
}
cudaError_t cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long,
                                    cudaDriverEntryPointQueryResult* found) {
  return entry_point(name, function, found);
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  return entry_point(name, function, found);
}

}  // extern "C"
