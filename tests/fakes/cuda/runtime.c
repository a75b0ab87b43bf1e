/* A stand-in for CUDA's runtime under llama.cpp's CUDA backend: it counts memory and computes nothing.
 *
 * Kernels do not run, copies to the device are dropped, and what is copied from it is zeros, so every logit is 0. Real is
 * what ggbench has to get right without a GPU: what llama.cpp allocates where, says of it, and does when it runs out. */
#include "device.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

#undef cudaGetDeviceProperties

#define ALIGNED(bytes) (((bytes) + 2 * MIB - 1) & ~(2 * MIB - 1)) /* CUDA hands out 2 MiB at a time */
#define NOTHING(...) { return cudaSuccess; }

static __thread cudaError_t last_error;
static __thread int ordinal; /* of the device that this thread works with */
static int is_capturing;

static struct allocation {
    int number;
    void *place;
    uint64_t bytes;
    struct allocation *next;
} *allocations;

static cudaError_t failed(cudaError_t error) {
    last_error = error;
    return error;
}

/* The number of this thread's device, which costs what a context does when it is first used. */
static int device_in_use(void) {
    static int has_context[MAX_DEVICES];
    int number = visible_device(ordinal);
    if (!has_context[number]) has_context[number] = device_take(number, CONTEXT_BYTES);
    return number;
}

static cudaError_t make_handle(void *handle) {
    *(void **)handle = malloc(1);
    return cudaSuccess;
}

/* Memory. */

cudaError_t cudaMalloc(void **place, size_t bytes) {
    int number = device_in_use();
    uint64_t taken = ALIGNED(bytes ? bytes : 1);
    *place = NULL;
    if (!device_take(number, taken)) return failed(cudaErrorMemoryAllocation);
    struct allocation *allocation = malloc(sizeof *allocation);
    *allocation = (struct allocation){number, address_space(taken), taken, allocations};
    allocations = allocation;
    *place = allocation->place;
    return cudaSuccess;
}

cudaError_t cudaFree(void *place) {
    for (struct allocation **link = &allocations; *link; link = &(*link)->next) {
        struct allocation *found = *link;
        if (found->place != place) continue;
        *link = found->next;
        munmap(found->place, found->bytes);
        device_give(found->number, found->bytes);
        free(found);
        break;
    }
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    uint64_t left, total;
    device_memory(device_in_use(), &left, &total);
    *free_bytes = left, *total_bytes = total;
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **place, size_t bytes) {
    return posix_memalign(place, 4096, bytes ? bytes : 1) ? failed(cudaErrorMemoryAllocation) : cudaSuccess;
}

cudaError_t cudaFreeHost(void *place) {
    free(place);
    return cudaSuccess;
}

cudaError_t cudaMallocManaged(void **place, size_t bytes, unsigned flags) { return cudaMalloc(place, bytes); }
cudaError_t cudaHostAlloc(void **place, size_t bytes, unsigned flags) { return cudaMallocHost(place, bytes); }
cudaError_t cudaHostRegister(void *place, size_t bytes, unsigned flags) NOTHING()
cudaError_t cudaHostUnregister(void *place) NOTHING()
cudaError_t cudaHostGetDevicePointer(void **device_place, void *place, unsigned flags) {
    *device_place = place;
    return cudaSuccess;
}

static cudaError_t copy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    if (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDefault) memcpy(to, from, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    return copy(to, from, bytes, kind);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    return copy(to, from, bytes, kind);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                              enum cudaMemcpyKind kind, cudaStream_t stream) NOTHING()
cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t bytes,
                                cudaStream_t stream) NOTHING()
cudaError_t cudaMemset(void *place, int value, size_t bytes) NOTHING()
cudaError_t cudaMemsetAsync(void *place, int value, size_t bytes, cudaStream_t stream) NOTHING()

/* The device: as large in everything but memory as an H100, so that llama.cpp takes the ways it has for one. */

cudaError_t cudaGetDeviceCount(int *count) {
    int numbers[MAX_DEVICES];
    *count = visible_devices(numbers);
    return *count ? cudaSuccess : failed(cudaErrorNoDevice);
}

cudaError_t cudaGetDevice(int *wanted) {
    *wanted = ordinal;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int wanted) {
    if (visible_device(wanted) < 0) return failed(cudaErrorInvalidDevice);
    ordinal = wanted;
    return cudaSuccess;
}

cudaError_t cudaSetDeviceFlags(unsigned flags) NOTHING()

cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int wanted) {
    snprintf(text, size, DEVICE_BUS_ID + 4, visible_device(wanted)); /* of its domain four digits, where NVML has eight */
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *answer, int wanted) {
    uint64_t left, total;
    device_memory(visible_device(wanted), &left, &total);
    *answer = (struct cudaDeviceProp){
        .name = DEVICE_NAME,
        .totalGlobalMem = total,
        .major = 9,
        .multiProcessorCount = 132,
        .sharedMemPerBlock = 49152,
        .sharedMemPerBlockOptin = 232448,
        .sharedMemPerMultiprocessor = 233472,
        .warpSize = 32,
        .regsPerBlock = 65536,
        .maxThreadsPerBlock = 1024,
        .maxThreadsPerMultiProcessor = 2048,
        .pciBusID = visible_device(wanted),
        .cooperativeLaunch = 1,
    };
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int wanted) {
    *value = attribute == cudaDevAttrComputeCapabilityMajor       ? 9
             : attribute == cudaDevAttrMultiProcessorCount        ? 132
             : attribute == cudaDevAttrMaxSharedMemoryPerBlockOptin ? 232448
             : attribute == cudaDevAttrWarpSize                   ? 32
             : attribute == cudaDevAttrCooperativeLaunch          ? 1
                                                                  : 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int one, int other) {
    *can = 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int other, unsigned flags) NOTHING()
cudaError_t cudaDeviceSynchronize(void) NOTHING()

/* Errors. */

cudaError_t cudaGetLastError(void) {
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void) { return last_error; }

const char *cudaGetErrorString(cudaError_t error) {
    return error == cudaSuccess                 ? "no error"
           : error == cudaErrorMemoryAllocation ? "out of memory"
           : error == cudaErrorNoDevice         ? "no CUDA-capable device is detected"
           : error == cudaErrorInvalidDevice    ? "invalid device ordinal"
                                                : "unknown error";
}

/* Streams, events and graphs: everything is done as soon as it is asked for. */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) { return make_handle(stream); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) NOTHING()
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) NOTHING()
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    usleep(200); /* else a decode is over before a machine's readings can begin */
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
    *status = is_capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    is_capturing = 1;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    is_capturing = 0;
    return make_handle(graph);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) { return make_handle(event); }
cudaError_t cudaEventDestroy(cudaEvent_t event) NOTHING()
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) NOTHING()
cudaError_t cudaEventSynchronize(cudaEvent_t event) NOTHING()

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *instance, cudaGraph_t graph, unsigned long long flags) {
    return make_handle(instance);
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t instance, cudaGraph_t graph, cudaGraphExecUpdateResultInfo *answer) {
    memset(answer, 0, sizeof *answer);
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t instance, cudaStream_t stream) NOTHING()
cudaError_t cudaGraphDestroy(cudaGraph_t graph) NOTHING()
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t instance) NOTHING()

/* Kernels: they are registered, looked up and launched, and nothing runs. */

void **__cudaRegisterFatBinary(void *binary) {
    static void *handle;
    return &handle;
}

void __cudaRegisterFatBinaryEnd(void **handle) {}
void __cudaUnregisterFatBinary(void **handle) {}
void __cudaRegisterFunction(void **handle, const char *host, char *device_function, const char *name, int threads,
                            void *thread, void *block, void *block_size, void *grid_size, int *warp_size) {}
void __cudaRegisterVar(void **handle, char *host, char *address, const char *name, int is_external, size_t bytes,
                       int is_constant, int is_global) {}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, void *stream) { return 0; }

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes, void *stream) {
    memset(grid, 0, sizeof *grid);
    memset(block, 0, sizeof *block);
    *shared_bytes = 0;
    *(void **)stream = NULL;
    return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host) {
    *kernel = (cudaKernel_t)host;
    return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
                               cudaStream_t stream) NOTHING()
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel, void **arguments) NOTHING()
cudaError_t cudaLaunchCooperativeKernel(const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
                                        cudaStream_t stream) NOTHING()

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *answer, const void *kernel) {
    *answer = (struct cudaFuncAttributes){.binaryVersion = 90, .ptxVersion = 90, .maxThreadsPerBlock = 1024, .numRegs = 64};
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attribute, int value) NOTHING()

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *count, const void *kernel, int block_size,
                                                                   size_t shared_bytes, unsigned flags) {
    *count = 2;
    return cudaSuccess;
}
