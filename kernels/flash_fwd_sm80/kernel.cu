// Attention, forward: O = softmax(scale Q K^T) V and the rows' natural log-sum-exp, after
// FlashAttention-2 (Dao, arXiv 2307.08691) with the online softmax of Milakov and Gimelshein
// (arXiv 1805.02867) in the exp2 domain. One block of WARPS warps computes BM rows of one head and
// visits the keys BN at a time, STAGES tiles of K and V in flight.
#include "cubridge/sm80.cuh"

using namespace cubridge;

struct Args {
  TensorArg q, k, v, o, lse;  // [B, Hq, Nq, D], [B, Hkv, Nk, D] twice, [B, Hq, Nq, D], [B, Hq, Nq]
  int B, Hq, Hkv, Nq, Nk;
  float scale;  // positive
};

// The tile schedule: which key tiles a block of query rows visits, in which order, and which hold
// only kept pairs.
template <int BM, int BN>
__device__ int tile_count(const Args& args, int b, int h, int q0) {
  return ceil_div(args.Nk, BN);
}

template <int BM, int BN>
__device__ int tile_index(const Args& args, int b, int h, int q0, int step) {
  return step;
}

template <int BM, int BN>
__device__ bool tile_full(const Args& args, int b, int h, int q0, int n) {
  return (n + 1) * BN <= args.Nk;
}

template <typename T, int D, int BM, int BN, int STAGES, int WARPS>
__global__ void __launch_bounds__(WARPS * 32) flash_fwd(const __grid_constant__ Args args) {
  const auto Q = gmem<T>(args.q, args.B, args.Hq, args.Nq, D);
  const auto K = gmem<T>(args.k, args.B, args.Hkv, args.Nk, D);
  const auto V = gmem<T>(args.v, args.B, args.Hkv, args.Nk, D);
  const auto O = gmem<T>(args.o, args.B, args.Hq, args.Nq, D);
  const auto LSE = gmem<float>(args.lse, args.B, args.Hq, args.Nq);

  const auto sQ = shared<T, BM, D>(0);
  const auto sK = shared_stages<T, STAGES, BN, D>(BM * D * sizeof(T));
  const auto sV = shared_stages<T, STAGES, BN, D>((BM + STAGES * BN) * D * sizeof(T));
  const auto sO = shared<T, BM, D>(0);

  // Neighbouring blocks share a head, so that its keys and values stay in L2.
  const int q_tiles = ceil_div(args.Nq, BM);
  const int block = blockIdx.x;
  const int q0 = block % q_tiles * BM;
  const int h = block / q_tiles % args.Hq;
  const int b = block / q_tiles / args.Hq;
  const int h_kv = h / (args.Hq / args.Hkv);

  const int tiles = tile_count<BM, BN>(args, b, h, q0);
  const float scale_log2 = args.scale * LOG2E;
  auto o = zeros<MmaAcc<BM, D, WARPS>>();
  auto m = fill<RowOf<MmaAcc<BM, D, WARPS>>>(-INFINITY);
  auto l = zeros<RowOf<MmaAcc<BM, D, WARPS>>>();

  copy_async(sQ, Q.tile(b, h, q0));
  for (int stage = 0; stage < STAGES - 1; ++stage) {
    if (stage < tiles) {
      const int first = tile_index<BM, BN>(args, b, h, q0, stage);
      copy_async(sK[stage], K.tile(b, h_kv, first * BN));
      copy_async(sV[stage], V.tile(b, h_kv, first * BN));
    }
    commit_async();
  }

  for (int step = 0; step < tiles; ++step) {
    const int n = tile_index<BM, BN>(args, b, h, q0, step);
    wait_async<STAGES - 2>();
    sync();
    auto s = zeros<MmaAcc<BM, BN, WARPS>>();
    gemm(s, sQ, transpose(sK[step % STAGES]));

    // The barrier above also said that every warp has left the stage that is filled next.
    const int ahead = step + STAGES - 1;
    if (ahead < tiles) {
      const int next = tile_index<BM, BN>(args, b, h, q0, ahead);
      copy_async(sK[ahead % STAGES], K.tile(b, h_kv, next * BN));
    }

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

    if (ahead < tiles) {
      const int next = tile_index<BM, BN>(args, b, h, q0, ahead);
      copy_async(sV[ahead % STAGES], V.tile(b, h_kv, next * BN));
    }
    commit_async();

    gemm(o, p, sV[step % STAGES]);
  }

  l = row_reduce(l);
  const auto inverse = map(l, [&](float sum) { return sum == 0.0f ? 0.0f : rcp_approx(sum); });
  o = map(o, inverse, [&](float x, float r) { return x * r; });
  const auto lse = map(m, l, [&](float top, float sum) { return sum == 0.0f ? -INFINITY : top * args.scale + log(sum); });
  store_rows(LSE.tile(b, h, q0), lse);

  // O goes out through Q's shared memory, once no copy and no warp uses it any more.
  wait_async<0>();
  sync();
  store(sO, o);
  sync();
  copy(O.tile(b, h, q0), sO);
}

// Two blocks to a multiprocessor wherever its shared memory allows; key tiles short enough that the
// score tile leaves registers for what a variant adds to it.
template <typename T, int D>
cudaError_t launch(const Args& args, cudaStream_t stream) {
  constexpr int WARPS = 4;
  constexpr int STAGES = 2;
  constexpr int BM = shared_limit() >= 128 * 1024 ? 128 : 64;
  constexpr int BN = D == 64 ? 64 : (shared_limit() >= 192 * 1024 ? 48 : 32);
  constexpr int SMEM_BYTES = (BM + 2 * STAGES * BN) * D * sizeof(T);
  const int blocks = ceil_div(args.Nq, BM) * args.Hq * args.B;
  if (blocks == 0) {
    return cudaSuccess;
  }
  return run<flash_fwd<T, D, BM, BN, STAGES, WARPS>>(dim3(blocks), WARPS * 32, SMEM_BYTES, stream, args);
}
