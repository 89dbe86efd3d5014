// Attention of one head with bulk copies and wgmma: a producer warp fills two stages of keys and
// values, four consumer warps multiply. 64 rows a block, D is 64, tiles of 64 keys, whole tiles; the
// result leaves by a bulk store.
#include <cstdint>

struct alignas(64) Map {
  char bytes[128];
};

namespace {
constexpr int kD = 64, kTile = 64, kBytes = kTile * kD * 2, kStages = 2;

__device__ __forceinline__ uint32_t at(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
__device__ __forceinline__ void wait(uint64_t* barrier, int parity) {
  asm volatile("{\n.reg .pred p;\nagain:\n"
               "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra again;\n}"
               ::"r"(at(barrier)), "r"(parity) : "memory");
}
__device__ __forceinline__ void arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at(barrier)) : "memory");
}
__device__ __forceinline__ void expect(uint64_t* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               ::"r"(at(barrier)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void load(void* to, const Map& map, int row, uint64_t* barrier) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%2, %3}], [%4];"
               ::"r"(at(to)), "l"(&map), "r"(0), "r"(row), "r"(at(barrier)) : "memory");
}
// Rows of 128 bytes, swizzled by 128: eight rows are 1024 bytes.
__device__ __forceinline__ uint64_t descriptor(const void* p, int k) {
  return uint64_t((at(p) + k & 0x3FFFF) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}
#define REGISTERS                                                                              \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
  "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define OUTPUTS(d)                                                                               \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),            \
      "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),    \
      "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), \
      "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), \
      "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
__device__ __forceinline__ void scores(float (&d)[32], uint64_t a, uint64_t b, int add) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " REGISTERS
               ", %32, %33, p, 1, 1, 0, 0;\n}" : OUTPUTS(d) : "l"(a), "l"(b), "r"(add));
}
__device__ __forceinline__ void values(float (&d)[32], const uint32_t* a, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " REGISTERS
               ", {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
               : OUTPUTS(d) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ __forceinline__ void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void settle() {
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}
__device__ __forceinline__ uint32_t pack(float low, float high) {
  uint32_t out;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
}
}  // namespace

extern "C" __global__ void __launch_bounds__(256)
wgmma_attention(const __grid_constant__ Map q, const __grid_constant__ Map k,
                const __grid_constant__ Map v, const __grid_constant__ Map o, int tiles,
                float scale) {
  extern __shared__ __align__(1024) char memory[];
  __shared__ __align__(8) uint64_t full[kStages], empty[kStages], ready;
  char* sq = memory;
  char* sk = memory + kBytes;
  char* sv = sk + kStages * kBytes;
  const int t = threadIdx.x, row = blockIdx.x * kTile;
  if (t == 0) {
    for (int s = 0; s < kStages; s++) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at(full + s)) : "memory");
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 4;" ::"r"(at(empty + s)) : "memory");
    }
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at(&ready)) : "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
  }
  __syncthreads();
  if (t >= 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (t == 128) {
      expect(&ready, kBytes);
      load(sq, q, row, &ready);
      for (int n = 0; n < tiles; n++) {
        int s = n % kStages;
        if (n >= kStages) wait(empty + s, (n / kStages + 1) & 1);
        expect(full + s, 2 * kBytes);
        load(sk + s * kBytes, k, n * kTile, full + s);
        load(sv + s * kBytes, v, n * kTile, full + s);
      }
    }
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 208;");
  float out[32] = {}, most[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
  wait(&ready, 0);
  for (int n = 0; n < tiles; n++) {
    int s = n % kStages;
    wait(full + s, n / kStages & 1);
    float d[32];
    fence();
#pragma unroll
    for (int c = 0; c < 4; c++)
      scores(d, descriptor(sq, 32 * c), descriptor(sk + s * kBytes, 32 * c), c > 0);
    commit();
    settle();
    uint32_t p[16];
#pragma unroll
    for (int r = 0; r < 2; r++) {
      float high = most[r];
#pragma unroll
      for (int i = 0; i < 16; i++) high = fmaxf(high, d[i / 2 * 4 + 2 * r + i % 2]);
      high = fmaxf(high, __shfl_xor_sync(~0u, high, 1));
      high = fmaxf(high, __shfl_xor_sync(~0u, high, 2));
      float shrink = exp2f((most[r] - high) * scale);
      most[r] = high;
      sum[r] *= shrink;
#pragma unroll
      for (int i = 0; i < 16; i++) {
        float& x = d[i / 2 * 4 + 2 * r + i % 2];
        x = exp2f((x - high) * scale);
        sum[r] += x;
        out[i / 2 * 4 + 2 * r + i % 2] *= shrink;
      }
    }
#pragma unroll
    for (int i = 0; i < 16; i++) p[i] = pack(d[2 * i], d[2 * i + 1]);
    fence();
#pragma unroll
    for (int c = 0; c < 4; c++) values(out, p + 4 * c, descriptor(sv + s * kBytes, 2048 * c));
    commit();
    settle();
    if (t % 32 == 0) arrive(empty + s);
  }
#pragma unroll
  for (int r = 0; r < 2; r++) {
    sum[r] += __shfl_xor_sync(~0u, sum[r], 1);
    sum[r] += __shfl_xor_sync(~0u, sum[r], 2);
    int line = t / 32 * 16 + t % 32 / 4 + 8 * r;
#pragma unroll
    for (int i = 0; i < 8; i++)
      *reinterpret_cast<uint32_t*>(sq + line * 128 + ((i ^ line % 8) * 16 + t % 4 * 4)) =
          pack(out[4 * i + 2 * r] / sum[r], out[4 * i + 2 * r + 1] / sum[r]);
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  asm volatile("bar.sync 1, 128;" ::: "memory");
  if (t == 0) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];"
                 ::"l"(&o), "r"(0), "r"(row), "r"(at(sq)) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
  }
}
