#pragma once
#include <cublas_v2.h>

using cublasLtHandle_t = struct cublasLtContext*;
template <class... T> cublasStatus_t cublasLtCreate(T...) { return CUBLAS_STATUS_SUCCESS; }
template <class... T> cublasStatus_t cublasLtDestroy(T...) { return CUBLAS_STATUS_SUCCESS; }
