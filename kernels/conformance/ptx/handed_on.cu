// What is handed on at mbarriers by states and by copies: arrivals of cp.async, rows of bytes that
// bulk copies move, waits for a state, an arrival fewer from the next phase on.
#include <cstdint>

namespace {

constexpr int kThreads = 128;

__device__ __forceinline__ uint32_t at(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
__device__ __forceinline__ void init(uint32_t barrier, int count) {
  if (threadIdx.x == 0)
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count));
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  __syncthreads();
}
__device__ __forceinline__ void wait(uint32_t barrier, uint64_t state) {
  asm volatile("{\n.reg .pred p;\nagain:\nmbarrier.test_wait.shared::cta.b64 p, [%0], %1;\n"
               "@!p bra again;\n}" ::"r"(barrier), "l"(state) : "memory");
}
__device__ __forceinline__ void suspended(uint32_t barrier, uint64_t state) {
  asm volatile("{\n.reg .pred p;\nagain:\nmbarrier.try_wait.shared::cta.b64 p, [%0], %1;\n"
               "@!p bra again;\n}" ::"r"(barrier), "l"(state) : "memory");
}
__device__ __forceinline__ void wait_parity(uint32_t barrier, int parity) {
  asm volatile("{\n.reg .pred p;\nagain:\nmbarrier.test_wait.parity.shared::cta.b64 p, [%0], %1;\n"
               "@!p bra again;\n}" ::"r"(barrier), "r"(parity) : "memory");
}

}  // namespace

// Three phases: each thread writes, arrives, waits for its state, and reads another's.
extern "C" __global__ void states(const uint32_t* source, uint32_t* target) {
  __shared__ __align__(8) uint64_t barrier;
  __shared__ uint32_t values[kThreads];
  const int t = threadIdx.x;
  const uint32_t address = at(&barrier);
  init(address, kThreads);
  uint32_t sum = 0;
  for (int phase = 0; phase < 3; phase++) {
    values[t] = source[phase * kThreads + t];
    uint64_t state, other;
    asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];" : "=l"(state) : "r"(address) : "memory");
    phase == 1 ? suspended(address, state) : wait(address, state);
    sum = sum * 3 + values[kThreads - 1 - t];
    asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1], 1;" : "=l"(other) : "r"(address) : "memory");
    wait(address, other);
  }
  target[t] = sum;
  __syncthreads();
  if (t == 0) asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(address) : "memory");
}

// Half of the threads leave in the first phase; the second one needs the others alone.
extern "C" __global__ void dropped(const uint32_t* source, uint32_t* target) {
  __shared__ __align__(8) uint64_t barrier;
  __shared__ uint32_t values[kThreads];
  const int t = threadIdx.x;
  const uint32_t address = at(&barrier);
  init(address, kThreads);
  values[t] = source[t];
  uint64_t state;
  if (t < 64) {
    asm volatile("mbarrier.arrive_drop.shared::cta.b64 %0, [%1];" : "=l"(state) : "r"(address) : "memory");
    wait(address, state);
    target[t] = values[t + 64];
  } else {
    asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];" : "=l"(state) : "r"(address) : "memory");
    wait(address, state);
    uint32_t other = values[t - 64];
    asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];" : "=l"(state) : "r"(address) : "memory");
    wait_parity(address, 1);
    target[t] = other + values[t ^ 1];
  }
}

// cp.async whose arrival the mbarrier counts (.noinc), and one that adds its own.
extern "C" __global__ void copies(const uint32_t* source, uint32_t* target) {
  __shared__ __align__(8) uint64_t barrier[2];
  __shared__ __align__(16) uint32_t values[2][4 * kThreads];
  const int t = threadIdx.x;
  init(at(&barrier[0]), kThreads);
  init(at(&barrier[1]), kThreads);
  for (int k = 0; k < 2; k++)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at(&values[k][4 * t])),
                 "l"(source + k * 4 * kThreads + 4 * (t * 37 % kThreads)) : "memory");
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(at(&barrier[0])) : "memory");
  asm volatile("cp.async.mbarrier.arrive.shared::cta.b64 [%0];" ::"r"(at(&barrier[1])) : "memory");
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at(&barrier[1])) : "memory");
  wait_parity(at(&barrier[0]), 0);
  wait_parity(at(&barrier[1]), 0);
  for (int k = 0; k < 2; k++)
    for (int i = 0; i < 4; i++) target[(k * 4 + i) * kThreads + t] = values[k][i * kThreads + (t ^ 5)];
}

// Rows of bytes: into shared memory by the bytes that an mbarrier expects, and out again.
extern "C" __global__ void rows(const uint32_t* source, uint32_t* target) {
  __shared__ __align__(8) uint64_t barrier;
  __shared__ __align__(128) uint32_t values[1024];
  const int t = threadIdx.x;
  const uint32_t address = at(&barrier);
  init(address, 1);
  uint64_t state = 0;
  if (t == 0) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 %0, [%1], %2;"
                 : "=l"(state) : "r"(address), "r"(4096) : "memory");
    for (int k = 0; k < 2; k++)
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                   ::"r"(at(&values[512 * k])), "l"(source + 640 * k), "r"(2048), "r"(address) : "memory");
    wait(address, state);
  }
  wait_parity(address, 0);
  for (int k = t; k < 1024; k += kThreads) values[k] += k;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (t == 0) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                 ::"l"(target + 256), "r"(at(values)), "r"(4096 - 16) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
}

// Two blocks: the second to come reads what the first one left. Fences of every scope.
extern "C" __global__ void __launch_bounds__(128) blocks(const uint32_t* source, uint32_t* target) {
  __shared__ uint32_t old;
  const int t = threadIdx.x;
  target[1024 + blockIdx.x * 128 + t] = source[blockIdx.x * 128 + t];
  __threadfence();
  __syncthreads();
  if (t == 0) {
    old = atomicAdd(target + 2000, 1);
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
  }
  __syncthreads();
  __threadfence_block();
  __threadfence_system();
  asm volatile("fence.sc.cta;" ::: "memory");
  asm volatile("fence.sc.gpu;" ::: "memory");
  if (old == 1) target[t] = __ldcg(target + 1024 + t) + 3 * __ldcg(target + 1152 + t);
}
