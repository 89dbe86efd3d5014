// Instructions that memory or other threads give a meaning, one entry each: bytes come from
// `source`, results go to `target`. Every entry is run with the same bytes on a GPU and executed
// from its PTX; see engine/ptx/conformance.py.

#include <cstdint>

namespace {

constexpr int kThreads = 128;
constexpr int kBytes = 32 << 10;  // of shared memory

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void fill(uint32_t* shared, const uint32_t* source) {
  for (int i = threadIdx.x; i < kBytes / 4; i += kThreads) shared[i] = source[i];
  __syncthreads();
}

__device__ __forceinline__ void drain(const uint32_t* shared, uint32_t* target) {
  __syncthreads();
  for (int i = threadIdx.x; i < kBytes / 4; i += kThreads) target[i] = shared[i];
}

extern __shared__ __align__(1024) uint32_t shared[];

}  // namespace

#define LDMATRIX(name, suffix, outputs, count, ...)                                              \
  extern "C" __global__ void name(const uint32_t* source, uint32_t* target) {                    \
    fill(shared, source);                                                                        \
    uint32_t r[4] = {0, 0, 0, 0};                                                                \
    uint32_t row = shared_address(shared) + (threadIdx.x * 5 % 128) * 16;                        \
    asm volatile("ldmatrix.sync.aligned.m8n8." suffix ".shared.b16 " outputs ", [%" #count "];"  \
                 : __VA_ARGS__ : "r"(row));                                                      \
    for (int i = 0; i < 4; i++) target[threadIdx.x * 4 + i] = r[i];                              \
  }
LDMATRIX(ldmatrix_x1, "x1", "{%0}", 1, "=r"(r[0]))
LDMATRIX(ldmatrix_x2, "x2", "{%0, %1}", 2, "=r"(r[0]), "=r"(r[1]))
LDMATRIX(ldmatrix_x4, "x4", "{%0, %1, %2, %3}", 4, "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]))
LDMATRIX(ldmatrix_x1_trans, "x1.trans", "{%0}", 1, "=r"(r[0]))
LDMATRIX(ldmatrix_x2_trans, "x2.trans", "{%0, %1}", 2, "=r"(r[0]), "=r"(r[1]))
LDMATRIX(ldmatrix_x4_trans, "x4.trans", "{%0, %1, %2, %3}", 4, "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]))

#define STMATRIX(name, suffix, inputs, ...)                                                      \
  extern "C" __global__ void name(const uint32_t* source, uint32_t* target) {                    \
    fill(shared, source);                                                                        \
    uint32_t r[4];                                                                               \
    for (int i = 0; i < 4; i++) r[i] = source[(threadIdx.x * 4 + i) * 7 % 4096];                 \
    uint32_t row = shared_address(shared) + (threadIdx.x * 5 % 128) * 16;                        \
    asm volatile("stmatrix.sync.aligned.m8n8." suffix ".shared.b16 [%0], " inputs ";"            \
                 :: "r"(row), __VA_ARGS__ : "memory");                                           \
    drain(shared, target);                                                                       \
  }
STMATRIX(stmatrix_x1, "x1", "{%1}", "r"(r[0]))
STMATRIX(stmatrix_x2, "x2", "{%1, %2}", "r"(r[0]), "r"(r[1]))
STMATRIX(stmatrix_x4, "x4", "{%1, %2, %3, %4}", "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]))
STMATRIX(stmatrix_x2_trans, "x2.trans", "{%1, %2}", "r"(r[0]), "r"(r[1]))
STMATRIX(stmatrix_x4_trans, "x4.trans", "{%1, %2, %3, %4}", "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]))

// cp.async of 4, 8 and 16 bytes, whole and with zeros behind the first bytes.
#define COPY(name, kind, size)                                                                   \
  extern "C" __global__ void name(const uint32_t* source, uint32_t* target) {                    \
    fill(shared, source);                                                                        \
    uint32_t to = shared_address(shared) + threadIdx.x * 32;                                     \
    const char* from = reinterpret_cast<const char*>(source) + (threadIdx.x * 37 % 128) * 16;    \
    asm volatile("cp.async." kind ".shared.global [%0], [%1], " #size ";"                        \
                 :: "r"(to), "l"(from) : "memory");                                              \
    asm volatile("cp.async.commit_group;" ::: "memory");                                         \
    uint32_t some = threadIdx.x % (size + 1);                                                    \
    asm volatile("cp.async." kind ".shared.global [%0], [%1], " #size ", %2;"                    \
                 :: "r"(to + 16), "l"(from), "r"(some) : "memory");                              \
    asm volatile("cp.async.wait_group 0;" ::: "memory");                                         \
    asm volatile("cp.async.wait_all;" ::: "memory");                                             \
    drain(shared, target);                                                                       \
  }
COPY(cp_async_ca_4, "ca", 4)
COPY(cp_async_ca_8, "ca", 8)
COPY(cp_async_ca_16, "ca", 16)
COPY(cp_async_cg_16, "cg", 16)

// m64n64k16 with operands in shared memory: swizzle `mode` (the descriptor's bits 62 and 63), rows
// contiguous where `turn` is 1. The tiles' strides are those of a tile of 64 columns.
__device__ __forceinline__ uint64_t descriptor(const void* p, uint32_t leading, uint32_t stride,
                                               uint64_t mode) {
  uint64_t start = (shared_address(p) & 0x3FFFF) >> 4;
  return start | uint64_t(leading >> 4) << 16 | uint64_t(stride >> 4) << 32 | mode << 62;
}

template <int kTurnA, int kTurnB, int kAccumulate>
__device__ __forceinline__ void multiply(float (&d)[32], uint64_t a, uint64_t b) {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "
      "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, p, 1, 1, %35, %36;\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
        "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "l"(a), "l"(b), "r"(kAccumulate), "n"(kTurnA), "n"(kTurnB));
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

#define WGMMA(name, mode, turn_a, turn_b, leading_a, stride_a, leading_b, stride_b)              \
  extern "C" __global__ void __launch_bounds__(128) name(const uint32_t* source,                 \
                                                         uint32_t* target) {                     \
    fill(shared, source);                                                                        \
    asm volatile("fence.proxy.async;" ::: "memory");                                             \
    __syncthreads();                                                                             \
    float d[32];                                                                                 \
    for (int i = 0; i < 32; i++) d[i] = static_cast<float>(threadIdx.x + i);                     \
    const char* base = reinterpret_cast<const char*>(shared);                                    \
    uint64_t a = descriptor(base, leading_a, stride_a, mode);                                    \
    uint64_t b = descriptor(base + 16384, leading_b, stride_b, mode);                            \
    multiply<turn_a, turn_b, 1>(d, a, b);                                                        \
    for (int i = 0; i < 32; i++) target[threadIdx.x * 32 + i] = __float_as_uint(d[i]);           \
  }
WGMMA(wgmma_swizzle_128, 1, 0, 0, 16, 1024, 16, 1024)
WGMMA(wgmma_swizzle_64, 2, 0, 0, 16, 512, 16, 512)
WGMMA(wgmma_swizzle_32, 3, 0, 0, 16, 256, 16, 256)
WGMMA(wgmma_no_swizzle, 0, 0, 0, 128, 256, 128, 256)
WGMMA(wgmma_turned_b_128, 1, 0, 1, 16, 1024, 8192, 1024)
WGMMA(wgmma_turned_b_64, 2, 0, 1, 16, 512, 512, 1024)
WGMMA(wgmma_turned_both_128, 1, 1, 1, 8192, 1024, 8192, 1024)
