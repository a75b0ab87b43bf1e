/* The part of CUDA's driver that llama.cpp calls itself: memory whose addresses are reserved before it is there. */
#include "device.h"

#include <cuda.h>

static struct mapping {
    CUdeviceptr place;
    int number;
    struct mapping *next;
} *mappings;

CUresult cuDeviceGet(CUdevice *wanted, int ordinal) {
    *wanted = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice wanted) {
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
    int number = visible_device(properties->location.id);
    *handle = number;
    return device_take(number, bytes) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemMap(CUdeviceptr place, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
    struct mapping *mapping = malloc(sizeof *mapping);
    *mapping = (struct mapping){place, (int)handle, mappings};
    mappings = mapping;
    return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr place, size_t bytes, const CUmemAccessDesc *access, size_t count) {
    return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) { return CUDA_SUCCESS; }

CUresult cuMemUnmap(CUdeviceptr place, size_t bytes) {
    for (struct mapping **link = &mappings; *link; link = &(*link)->next) {
        struct mapping *found = *link;
        if (found->place < place || found->place >= place + bytes) continue;
        device_give(found->number, bytes);
        break; /* llama.cpp unmaps its whole pool at once, which is on one device */
    }
    return CUDA_SUCCESS;
}
