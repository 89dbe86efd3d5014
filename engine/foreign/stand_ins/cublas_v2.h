// What sources say of cuBLAS, so that the kernels beside its calls compile. A call ends the launch:
// a library's kernels are not executed.
#pragma once

#include <cuda_runtime.h>
#include <library_types.h>

#include <cstdlib>

extern "C" void cubridge_refuse(const char* what);

enum cublasStatus_t { CUBLAS_STATUS_SUCCESS, CUBLAS_STATUS_NOT_SUPPORTED };
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C };
enum cublasMath_t { CUBLAS_DEFAULT_MATH, CUBLAS_TF32_TENSOR_OP_MATH, CUBLAS_TENSOR_OP_MATH };
enum cublasComputeType_t {
  CUBLAS_COMPUTE_16F, CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32, CUBLAS_COMPUTE_32F_FAST_16BF
};
enum cublasGemmAlgo_t { CUBLAS_GEMM_DEFAULT, CUBLAS_GEMM_DEFAULT_TENSOR_OP };
using cublasHandle_t = struct cublasContext*;

template <class... T> cublasStatus_t cubridge_library_call(const char* name) {
  cubridge_refuse(name);
  exit(1);
}
template <class... T> cublasStatus_t cublasCreate(T...) { return CUBLAS_STATUS_SUCCESS; }
template <class... T> cublasStatus_t cublasDestroy(T...) { return CUBLAS_STATUS_SUCCESS; }
template <class... T> cublasStatus_t cublasSetMathMode(T...) { return CUBLAS_STATUS_SUCCESS; }
template <class... T> cublasStatus_t cublasSetStream(T...) { return CUBLAS_STATUS_SUCCESS; }
template <class... T> cublasStatus_t cublasSetWorkspace(T...) { return CUBLAS_STATUS_SUCCESS; }
inline const char* cublasGetStatusString(cublasStatus_t) { return "a status of cuBLAS"; }
#define CUBRIDGE_REFUSED(name) \
  template <class... T> cublasStatus_t name(T...) { return cubridge_library_call(#name); }
CUBRIDGE_REFUSED(cublasSgemm)
CUBRIDGE_REFUSED(cublasHgemm)
CUBRIDGE_REFUSED(cublasGemmEx)
CUBRIDGE_REFUSED(cublasSgemmStridedBatched)
CUBRIDGE_REFUSED(cublasHgemmStridedBatched)
CUBRIDGE_REFUSED(cublasGemmStridedBatchedEx)
#undef CUBRIDGE_REFUSED
