/* The functions of cuBLAS that llama.cpp calls; they succeed and multiply nothing. */
#include <stdlib.h>

int cublasCreate_v2(void **handle) {
    *handle = malloc(1);
    return 0;
}

const char *cublasGetStatusString(int status) { return "stand-in"; }

#define SUCCEEDS(name) \
    int name() { return 0; }

SUCCEEDS(cublasDestroy_v2)
SUCCEEDS(cublasSetStream_v2)
SUCCEEDS(cublasSetMathMode)
SUCCEEDS(cublasSetWorkspace_v2)
SUCCEEDS(cublasSgemm_v2)
SUCCEEDS(cublasSgemmBatched)
SUCCEEDS(cublasSgemmStridedBatched)
SUCCEEDS(cublasGemmEx)
SUCCEEDS(cublasGemmBatchedEx)
SUCCEEDS(cublasGemmStridedBatchedEx)
SUCCEEDS(cublasStrsmBatched)
