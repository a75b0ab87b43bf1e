/* The part of CUDA's driver that llama.cpp calls itself: memory whose addresses are reserved before it is there. */
#include "device.h"

#include <cuda.h>

CUresult cuDeviceGet(CUdevice *number, int ordinal) {
    *number = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice number) {
    *value = attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
    return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char **text) {
    *text = error == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : "unknown error";
    return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *properties,
                                       CUmemAllocationGranularity_flags option) {
    *bytes = 2 * MIB;
    return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr *place, size_t bytes, size_t alignment, CUdeviceptr wanted,
                             unsigned long long flags) {
    *place = (CUdeviceptr)address_space(bytes);
    return *place ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemAddressFree(CUdeviceptr place, size_t bytes) {
    munmap((void *)place, bytes);
    return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *properties,
                     unsigned long long flags) {
    *handle = 0;
    return device_take(bytes) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemMap(CUdeviceptr place, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
    return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr place, size_t bytes, const CUmemAccessDesc *access, size_t count) {
    return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) { return CUDA_SUCCESS; }

CUresult cuMemUnmap(CUdeviceptr place, size_t bytes) {
    device_give(bytes);
    return CUDA_SUCCESS;
}
