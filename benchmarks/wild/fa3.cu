// FlashAttention-3's forward kernel for Hopper, bf16: HEAD and CAUSAL choose the instantiation.
#include "flash_fwd_launch_template.h"

#ifndef HEAD
#define HEAD 128
#endif
#ifndef CAUSAL
#define CAUSAL true
#endif

void launch(const void* q, const void* k, const void* v, void* o, float* lse, int B, int Hq,
            int Hkv, int Nq, int Nk, float scale, cudaStream_t stream) {
  Flash_fwd_params p{};
  p.q_ptr = const_cast<void*>(q);
  p.k_ptr = const_cast<void*>(k);
  p.v_ptr = const_cast<void*>(v);
  p.o_ptr = o;
  p.softmax_lse_ptr = lse;
  p.q_row_stride = p.k_row_stride = p.v_row_stride = p.o_row_stride = HEAD;
  p.q_head_stride = p.o_head_stride = int64_t(Nq) * HEAD;
  p.k_head_stride = p.v_head_stride = int64_t(Nk) * HEAD;
  p.q_batch_stride = p.o_batch_stride = Hq * p.q_head_stride;
  p.k_batch_stride = p.v_batch_stride = Hkv * p.k_head_stride;
  p.v_dim_stride = 1;
  p.b = p.b_k = B;
  p.h = Hq;
  p.h_k = Hkv;
  p.d = p.dv = p.d_rounded = p.dv_rounded = HEAD;
  p.seqlen_q = p.total_q = Nq;
  p.seqlen_k = p.total_k = Nk;
  p.seqlen_q_rounded = (Nq + 127) / 128 * 128;
  p.seqlen_k_rounded = (Nk + 127) / 128 * 128;
  p.scale_softmax = scale;
  p.p_dropout = p.rp_dropout = 1;
  p.window_size_left = -1;
  p.window_size_right = CAUSAL ? 0 : -1;
  p.is_bf16 = true;
  p.is_causal = CAUSAL;
  p.num_splits = 1;
  p.arch = 90;
  cudaDeviceGetAttribute(&p.num_sm, cudaDevAttrMultiProcessorCount, 0);
  int* semaphore;
  cudaMallocAsync(&semaphore, sizeof(int), stream);
  cudaMemsetAsync(semaphore, 0, sizeof(int), stream);
  p.tile_count_semaphore = semaphore;
  run_flash_fwd<90, HEAD, HEAD, 1, cutlass::bfloat16_t, cutlass::bfloat16_t, CAUSAL, false, false,
                false, false, false, false, false, false, false>(p, stream);
  cudaFreeAsync(semaphore, stream);
}
