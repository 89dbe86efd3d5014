// FlashAttention-2's forward kernel, bf16: HEAD and CAUSAL choose the instantiation.
#include <cstdio>

#include "namespace_config.h"

#include "flash_fwd_launch_template.h"

#include <cmath>

#ifndef HEAD
#define HEAD 64
#endif
#ifndef CAUSAL
#define CAUSAL true
#endif

using namespace FLASH_NAMESPACE;

void launch(const void* q, const void* k, const void* v, void* o, float* lse, int B, int Hq,
            int Hkv, int Nq, int Nk, float scale, cudaStream_t stream) {
  using Traits = Flash_fwd_kernel_traits<HEAD, 128, HEAD == 64 ? 128 : 64, 4, false, false,
                                         cutlass::bfloat16_t>;
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
  p.b = B;
  p.h = Hq;
  p.h_k = Hkv;
  p.h_h_k_ratio = Hq / Hkv;
  p.d = p.d_rounded = HEAD;
  p.seqlen_q = Nq;
  p.seqlen_k = Nk;
  p.seqlen_q_rounded = (Nq + 127) / 128 * 128;
  p.seqlen_k_rounded = (Nk + 127) / 128 * 128;
  p.scale_softmax = scale;
  p.scale_softmax_log2 = scale * float(M_LOG2E);
  p.p_dropout = p.rp_dropout = 1;
  p.p_dropout_in_uint8_t = 255;
  p.window_size_left = -1;
  p.window_size_right = CAUSAL ? 0 : -1;
  p.is_bf16 = true;
  p.is_causal = CAUSAL;
  p.num_splits = 1;
  // Whole tiles only with IsEvenMN; rows of HEAD elements need no check (IsEvenK).
  auto kernel =
      &flash_fwd_kernel<Traits, false, CAUSAL, false, false, false, true, false, false>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Traits::kSmemSize);
  dim3 grid((Nq + Traits::kBlockM - 1) / Traits::kBlockM, B, Hq);
  kernel<<<grid, Traits::kNThreads, Traits::kSmemSize, stream>>>(p);
}
