// 注意力前向：每个线程块处理 BM 行。Attention, forward; a file of its own for the lifter's tests.
#include "cubridge/sm80.cuh"
using namespace cubridge;

struct Args {
  TensorArg q, k, v, o, lse;
  int B, Hq, Hkv, Nq, Nk;
  float scale;
};

template <int BM, int BN>
__device__ int tile_count(const Args& args, int b, int h, int q0) {
  return ceil_div(args.Nk, BN);
}

template <int BM, int BN>
__device__ bool tile_full(const Args& args, int b, int h, int q0, int n) {
  return (n + 1) * BN <= args.Nk;
}

template <typename T, int D, int BM, int BN, int STAGES, int WARPS>
__global__ void __launch_bounds__(WARPS * 32, 1) flash_fwd(const __grid_constant__ Args args) {
  const auto Q = gmem<T>(args.q, args.B, args.Hq, args.Nq, D);
  const auto K = gmem<T>(args.k, args.B, args.Hkv, args.Nk, D);
  const auto V = gmem<T>(args.v, args.B, args.Hkv, args.Nk, D);
  const auto O = gmem<T>(args.o, args.B, args.Hq, args.Nq, D);
  const auto LSE = gmem<float>(args.lse, args.B, args.Hq, args.Nq);
  const auto sQ = shared<T, BM, D>(0);
  const auto sK = shared_stages<T, STAGES, BN, D>(BM * D * sizeof(T));
  const auto sV = shared_stages<T, STAGES, BN, D>((BM + STAGES * BN) * D * sizeof(T));
  using Acc = MmaAcc<BM, D, WARPS>;

  const int q_tiles = ceil_div(args.Nq, BM);
  const int block = blockIdx.x;
  const int q0 = block % q_tiles * BM;
  const int h = block / q_tiles % args.Hq;
  const int b = block / q_tiles / args.Hq;
  const int h_kv = h / (args.Hq / args.Hkv);
  const int tiles = tile_count<BM, BN>(args, b, h, q0);
  const float scale_log2 = args.scale * LOG2E;
  auto o = zeros<Acc>();
  auto m = fill<RowOf<Acc>>(-INFINITY);
  auto l = zeros<RowOf<Acc>>();

  copy_async(sQ, Q.tile(b, h, q0));  // 只读一次
  if constexpr (STAGES > 1) {
    for (int stage = 0; stage < STAGES - 1; ++stage) {
      if (stage < tiles) {
        copy_async(sK[stage], K.tile(b, h_kv, stage * BN));
        copy_async(sV[stage], V.tile(b, h_kv, stage * BN));
      }
      commit_async();
    }
  } else {
    copy_async(sK[0], K.tile(b, h_kv, 0));
    copy_async(sV[0], V.tile(b, h_kv, 0));
  }

  for (int n = 0; n < tiles; ++n) {
    wait_async<STAGES - 2>();
    sync();
    const int ahead = n + STAGES - 1;
    if (ahead < tiles) {
      copy_async(sK[ahead % STAGES], K.tile(b, h_kv, ahead * BN));
      copy_async(sV[ahead % STAGES], V.tile(b, h_kv, ahead * BN));
    }
    commit_async();
    auto s = zeros<MmaAcc<BM, BN, WARPS>>();
    gemm(s, sQ, transpose(sK[n % STAGES]));
    if (!tile_full<BM, BN>(args, b, h, q0, n)) {
      s = keep(s, at(q0, n * BN), [&](int i, int j) { return j < args.Nk; });
    }
    const auto m_prev = m;
    m = row_max(s, m);
    const auto alpha = map(m_prev, m, [&](float prev, float now) { return exp2_approx((prev - now) * scale_log2); });
    s = map(s, m, [&](float x, float top) { return exp2_approx(x * scale_log2 - top * scale_log2); });
    l = map(l, alpha, [&](float sum, float a) { return sum * a; });
    l = row_sum(s, l);
    o = map(o, alpha, [&](float x, float a) { return x * a; });
    const auto p = to_operand<T>(s);
    gemm(o, p, sV[n % STAGES]);
  }

  l = row_reduce(l);
  o = map(o, l, [&](float x, float sum) { return sum == 0.0f ? 0.0f : x / sum; });
  const auto lse = map(m, l, [&](float top, float sum) { return sum == 0.0f ? -INFINITY : top * args.scale + log(sum); });
  store_rows(LSE.tile(b, h, q0), lse);
  wait_async<0>();
  sync();
  store(sQ, o);
  sync();
  copy(O.tile(b, h, q0), sQ);
}

template <typename T, int D>
cudaError_t launch(const Args& args, cudaStream_t stream) {
  constexpr int WARPS = 4;
  constexpr int BM = 128;
  constexpr int BN = D == 64 ? 128 : 64;
  constexpr int STAGES = shared_limit() >= 160 * 1024 ? 2 : 1;
  constexpr int SMEM_BYTES = (BM + 2 * STAGES * BN) * D * sizeof(T);
  static_assert(BM % (WARPS * 16) == 0, "rows are dealt to the warps 16 at a time");
  static_assert(SMEM_BYTES <= shared_limit());
  const int blocks = ceil_div(args.Nq, BM) * args.Hq * args.B;
  if (blocks == 0) {
    return cudaSuccess;
  }
  return run<flash_fwd<T, D, BM, BN, STAGES, WARPS>>(dim3(blocks), WARPS * 32, SMEM_BYTES, stream, args);
}
