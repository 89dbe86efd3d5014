#include "cubridge/sm90.cuh"

using namespace cubridge;

struct Args {
  TensorArg q, k, v, o, lse;
  int B, Hq, Hkv, Nq, Nk;
  float scale;
};

// The tile schedule: which key tiles a block of BM query rows visits, in which order, and what ROWS of
// these rows do with them: whether they keep all of a tile, and how many of the first and of the last
// tiles hold nothing that they keep.
template <int BM, int BN>
__device__ int tile_count(const Args& args, int b, int h, int q0) {
  return ceil_div(args.Nk, BN);
}

template <int BM, int BN>
__device__ int tile_index(const Args& args, int b, int h, int q0, int step) {
  return ceil_div(args.Nk, BN) - 1 - step;
}

template <int BM, int BN, int ROWS>
__device__ bool tile_full(const Args& args, int b, int h, int row0, int n) {
  return (n + 1) * BN <= args.Nk;
}

template <int BM, int BN, int ROWS>
__device__ int tile_lead(const Args& args, int b, int h, int q0, int row0) {
  return 0;
}

template <int BM, int BN, int ROWS>
__device__ int tile_tail(const Args& args, int b, int h, int q0, int row0) {
  return 0;
}

// The work order: heads in sections whose keys and values stay in L2 together; within a section the
// last rows first, which are the longest wherever rows are uneven.
template <int BM>
__device__ int work_head(const Args& args, int section, int work) {
  const int row_blocks = ceil_div(args.Nq, BM);
  const int first = work / (section * row_blocks) * section;
  const int heads = min(section, args.B * args.Hq - first);
  return first + (work - first * row_blocks) % heads;
}

template <int BM>
__device__ int work_row(const Args& args, int section, int work) {
  const int row_blocks = ceil_div(args.Nq, BM);
  const int first = work / (section * row_blocks) * section;
  const int heads = min(section, args.B * args.Hq - first);
  return (row_blocks - 1 - (work - first * row_blocks) / heads) * BM;
}

template <typename T, int D, int DV, int BM, int BN, int STAGES, bool OVERLAP, int LOW, int HIGH>
__global__ void __launch_bounds__(BM * 2 + 128, 1)
    flash_fwd(const __grid_constant__ Args args, const __grid_constant__ TensorMap q_map,
              const __grid_constant__ TensorMap k_map, const __grid_constant__ TensorMap v_map,
              const int section) {
  // Rows are padded to whole panels of 64 columns: the TMA fills them with zeros, which add nothing to
  // a product. The matmuls take the first 16 by 16 of them, and the store drops what is left.
  constexpr int COLS = ceil_div(D, 64) * 64;
  constexpr int COLS_V = ceil_div(DV, 64) * 64;
  constexpr int WIDTH = ceil_div(D, 16) * 16;
  constexpr int WIDTH_V = ceil_div(DV, 16) * 16;
  constexpr int GROUPS = BM / 64;
  constexpr int K_AT = BM * COLS * sizeof(T);
  constexpr int V_AT = K_AT + STAGES * BN * COLS * sizeof(T);
  constexpr int BARRIERS_AT = V_AT + STAGES * BN * COLS_V * sizeof(T);
  const auto O = gmem<T>(args.o, args.B, args.Hq, args.Nq, DV);
  const auto LSE = gmem<float>(args.lse, args.B, args.Hq, args.Nq);
  const auto sQ = shared_stages<T, GROUPS, 64, COLS>(0);
  const auto sK = shared_stages<T, STAGES, BN, COLS>(K_AT);
  const auto sV = shared_stages<T, STAGES, BN, COLS_V>(V_AT);
  const auto q_full = mbarriers<GROUPS>(BARRIERS_AT);
  const auto q_empty = mbarriers<GROUPS>(BARRIERS_AT + 8 * GROUPS);
  const auto k_full = mbarriers<STAGES>(BARRIERS_AT + 16 * GROUPS);
  const auto k_empty = mbarriers<STAGES>(BARRIERS_AT + 16 * GROUPS + 8 * STAGES);
  const auto v_full = mbarriers<STAGES>(BARRIERS_AT + 16 * GROUPS + 16 * STAGES);
  const auto v_empty = mbarriers<STAGES>(BARRIERS_AT + 16 * GROUPS + 24 * STAGES);
  const int wg = warpgroup_id();
  const int works = ceil_div(args.Nq, BM) * args.Hq * args.B;
  if (wg == 0) {
    if (elect()) {
      for (int g = 0; g < GROUPS; ++g) {
        mbarrier_init(q_full[g], 1);
        mbarrier_init(q_empty[g], 1);
      }
      for (int stage = 0; stage < STAGES; ++stage) {
        mbarrier_init(k_full[stage], 1);
        mbarrier_init(k_empty[stage], GROUPS);
        mbarrier_init(v_full[stage], 1);
        mbarrier_init(v_empty[stage], GROUPS);
      }
      fence_barrier_init();
    }
  }
  sync();
  if (wg == 0) {
    lower_registers<LOW>();
    if (elect()) {
      int round = 0;
      int load = 0;
      for (int work = blockIdx.x; work < works; work += gridDim.x) {
        const int b = work_head<BM>(args, section, work) / args.Hq;
        const int h = work_head<BM>(args, section, work) % args.Hq;
        const int h_kv = h / (args.Hq / args.Hkv);
        const int q0 = work_row<BM>(args, section, work);
        const int tiles = tile_count<BM, BN>(args, b, h, q0);
        for (int step = 0; step < tiles; ++step) {
          const int n = tile_index<BM, BN>(args, b, h, q0, step);
          const int stage = load % STAGES;
          const int parity = load / STAGES % 2;
          wait(k_empty[stage], 1 - parity);
          arrive_expect(k_full[stage], BN * COLS * sizeof(T));
          tma_load(sK[stage], k_map, {0, n * BN, h_kv, b}, k_full[stage]);
          if (step == 0) {
            for (int g = 0; g < GROUPS; ++g) {
              wait(q_empty[g], 1 - round % 2);
              arrive_expect(q_full[g], 64 * COLS * sizeof(T));
              tma_load(sQ[g], q_map, {0, q0 + g * 64, h, b}, q_full[g]);
            }
            round = round + 1;
          }
          wait(v_empty[stage], 1 - parity);
          arrive_expect(v_full[stage], BN * COLS_V * sizeof(T));
          tma_load(sV[stage], v_map, {0, n * BN, h_kv, b}, v_full[stage]);
          load = load + 1;
        }
      }
    }
  } else {
    raise_registers<HIGH>();
    const int group = wg - 1;
    const int after = wg % GROUPS + 1;
    const float scale_log2 = args.scale * LOG2E;
    int round = 0;
    int load = 0;
    if (wg == GROUPS) {
      named_arrive(1, 256);
    }
    for (int work = blockIdx.x; work < works; work += gridDim.x) {
      const int b = work_head<BM>(args, section, work) / args.Hq;
      const int h = work_head<BM>(args, section, work) % args.Hq;
      const int q0 = work_row<BM>(args, section, work);
      const int row0 = q0 + group * 64;
      const int tiles = tile_count<BM, BN>(args, b, h, q0);
      auto o = zeros<WgmmaAcc<64, WIDTH_V>>();
      auto m = fill<RowOf<WgmmaAcc<64, BN>>>(-INFINITY);
      auto l = zeros<RowOf<WgmmaAcc<64, BN>>>();
      if (tiles > 0) {
        auto s = zeros<WgmmaAcc<64, BN>>();
        auto p = to_operand<T>(s);
        const int lead = tile_lead<BM, BN, 64>(args, b, h, q0, row0);
        const int end = tiles - tile_tail<BM, BN, 64>(args, b, h, q0, row0);
        wait(q_full[group], round % 2);

        // Tiles of which the block's other rows alone keep something: they go by, turns included.
        // Both waits come before the sync: the elected thread frees a stage for all of its warps.
        for (int step = 0; step < lead; ++step) {
          const int stage = load % STAGES;
          const int parity = load / STAGES % 2;
          wait(k_full[stage], parity);
          wait(v_full[stage], parity);
          named_sync(wg, 256);
          named_arrive(after, 256);
          if (elect()) {
            arrive(k_empty[stage]);
            arrive(v_empty[stage]);
          }
          load = load + 1;
        }
        for (int step = lead; step < end; ++step) {
          const int n = tile_index<BM, BN>(args, b, h, q0, step);
          const int stage = load % STAGES;
          const int parity = load / STAGES % 2;
          const int stage_before = (load + STAGES - 1) % STAGES;

          // S = Q K^T of this tile and, with OVERLAP, O += P V of the tile before, which goes on under
          // this tile's softmax. The warpgroups take turns, so that one's softmax runs under the
          // others' matmuls.
          wait(k_full[stage], parity);
          named_sync(wg, 256);
          mma_fence();
          gemm_async_init(s, columns<WIDTH>(sQ[group]), transpose(columns<WIDTH>(sK[stage])));
          mma_commit();
          if constexpr (OVERLAP) {
            if (step > lead) {
              mma_fence();
              gemm_async(o, p, columns<WIDTH_V>(sV[stage_before]));
              mma_commit();
              mma_wait<1>();
            } else {
              mma_wait<0>();
            }
          } else {
            mma_wait<0>();
          }
          named_arrive(after, 256);
          if (elect()) {
            arrive(k_empty[stage]);
          }

          if (!tile_full<BM, BN, 64>(args, b, h, row0, n)) {
            s = keep(s, at(row0, n * BN), [&](int i, int j) { return j < args.Nk; });
          }
          const auto m_prev = m;
          m = row_max(s, m);
          const auto alpha = map(m_prev, m, [&](float prev, float now) { return exp2_approx((prev - now) * scale_log2); });
          s = map(s, m, [&](float x, float top) { return exp2_approx(x * scale_log2 - top * scale_log2); });
          l = map(l, alpha, [&](float sum, float a) { return sum * a; });
          l = row_sum(s, l);

          // With OVERLAP this wait for V also keeps the compiler from moving the softmax below the
          // wait for the matmul in flight.
          if constexpr (OVERLAP) {
            wait(v_full[stage], parity);
            mma_wait<0>();
            if (elect() && step > lead) {
              arrive(v_empty[stage_before]);
            }
          }
          o = map(o, alpha, [&](float x, float a) { return x * a; });
          p = to_operand<T>(s);
          if constexpr (!OVERLAP) {
            wait(v_full[stage], parity);
            mma_fence();
            gemm_async(o, p, columns<WIDTH_V>(sV[stage]));
            mma_commit();
            mma_wait<0>();
            if (elect()) {
              arrive(v_empty[stage]);
            }
          }
          load = load + 1;
        }
        if (elect()) {
          arrive(q_empty[group]);
        }
        if constexpr (OVERLAP) {
          if (lead < end) {
            const int stage_last = (load + STAGES - 1) % STAGES;
            mma_fence();
            gemm_async(o, p, columns<WIDTH_V>(sV[stage_last]));
            mma_commit();
            mma_wait<0>();
            if (elect()) {
              arrive(v_empty[stage_last]);
            }
          }
        }
        for (int step = end; step < tiles; ++step) {
          const int stage = load % STAGES;
          const int parity = load / STAGES % 2;
          wait(k_full[stage], parity);
          wait(v_full[stage], parity);
          named_sync(wg, 256);
          named_arrive(after, 256);
          if (elect()) {
            arrive(k_empty[stage]);
            arrive(v_empty[stage]);
          }
          load = load + 1;
        }
        l = row_reduce(l);
        round = round + 1;
      }
      const auto inverse = map(l, [&](float sum) { return sum == 0.0f ? 0.0f : rcp_approx(sum); });
      const auto lse = map(m, l, [&](float top, float sum) { return sum == 0.0f ? -INFINITY : top * args.scale + log(sum); });
      o = map(o, inverse, [&](float x, float r) { return x * r; });
      store(O.tile(b, h, row0), o);
      store_rows(LSE.tile(b, h, row0), lse);
    }
  }
}

template <typename T, int D>
cudaError_t launch(const Args& args, cudaStream_t stream) {
  // Up to 128 columns: three computing warpgroups read each tile of K and V from shared memory, which
  // costs least power; above 64 their registers leave no room for a second matmul in flight, and three
  // hide each other's softmax without. Above 128: two, and overlap within each. BN leaves registers for
  // what a variant adds: 128 columns run as fast with BN 128, but then most variants spill.
  constexpr int DV = D == 192 ? 128 : D;
  constexpr int COLS = ceil_div(D, 64) * 64;
  constexpr int COLS_V = ceil_div(DV, 64) * 64;
  constexpr int WIDTH_V = ceil_div(DV, 16) * 16;
  constexpr int BM = COLS <= 128 ? 192 : 128;
  constexpr int BN = COLS == 256 ? 80 : COLS > COLS_V ? 128 : WIDTH_V > 96 ? 112 : 128;
  constexpr bool OVERLAP = COLS != 128;
  constexpr int STAGES = 2;
  constexpr int LOW = BM == 192 ? 32 : 40;
  constexpr int HIGH = BM == 192 ? 160 : 232;
  constexpr int BARRIERS = 2 * BM / 64 + 4 * STAGES;
  constexpr int BYTES = 1024 + BM * COLS * sizeof(T) + STAGES * BN * (COLS + COLS_V) * sizeof(T) + 8 * BARRIERS;
  const int works = ceil_div(args.Nq, BM) * args.Hq * args.B;
  if (works == 0) {
    return cudaSuccess;
  }
  const auto q_map = tensor_map<T, 64, COLS>(args.q, args.B, args.Hq, args.Nq, D);
  const auto k_map = tensor_map<T, BN, COLS>(args.k, args.B, args.Hkv, args.Nk, D);
  const auto v_map = tensor_map<T, BN, COLS_V>(args.v, args.B, args.Hkv, args.Nk, DV);
  // Blocks of 128 rows draw half as much again from L2 for their work: fewer heads at once.
  const int section = BM == 192 ? 16 : 8;
  const int blocks = min(works, sm_count());
  return run<flash_fwd<T, D, DV, BM, BN, STAGES, OVERLAP, LOW, HIGH>>(dim3(blocks), BM * 2 + 128, BYTES, stream, args, q_map, k_map, v_map, section);
}
