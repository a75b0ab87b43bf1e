/* NVML of the same devices, laid out as pynvml reads it. Its clocks, heat and power are constants. */
#include "device.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };
enum { CLOCK_MEM = 2 };
#define POWER_MW 300000

struct memory {
    unsigned long long total, free, used;
};
struct pci {
    char legacy_bus_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};
struct process {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};

static int copy_text(char *place, unsigned size, const char *text) {
    snprintf(place, size, "%s", text);
    return SUCCESS;
}

int nvmlInitWithFlags(unsigned flags) { return SUCCESS; }
int nvmlInit_v2(void) { return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int error) { return "stand-in"; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { return copy_text(text, size, DEVICE_DRIVER); }

int nvmlSystemGetProcessName(unsigned pid, char *text, unsigned size) {
    char path[32];
    snprintf(path, sizeof path, "/proc/%u/exe", pid);
    ssize_t length = readlink(path, text, size - 1);
    if (length < 0) return NOT_FOUND;
    text[length] = 0;
    return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = device_count();
    return SUCCESS;
}

/* A handle is the number of its device, from 1. */
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    *handle = (void *)(intptr_t)(index + 1);
    return index < device_count() ? SUCCESS : INVALID_ARGUMENT;
}

static int number_of(void *handle) { return (int)(intptr_t)handle - 1; }

int nvmlDeviceGetName(void *handle, char *text, unsigned size) { return copy_text(text, size, DEVICE_NAME); }

int nvmlDeviceGetUUID(void *handle, char *text, unsigned size) {
    snprintf(text, size, DEVICE_UUID, number_of(handle));
    return SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(void *handle, struct pci *answer) {
    memset(answer, 0, sizeof *answer);
    snprintf(answer->bus_id, sizeof answer->bus_id, DEVICE_BUS_ID, number_of(handle));
    snprintf(answer->legacy_bus_id, sizeof answer->legacy_bus_id, DEVICE_BUS_ID + 4, number_of(handle));
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(void *handle, struct memory *answer) {
    uint64_t free_bytes, total_bytes;
    device_memory(number_of(handle), &free_bytes, &total_bytes);
    *answer = (struct memory){total_bytes, free_bytes, total_bytes - free_bytes};
    return SUCCESS;
}

int nvmlDeviceGetMemoryBusWidth(void *handle, unsigned *bits) {
    *bits = 5120;
    return SUCCESS;
}

int nvmlDeviceGetClockInfo(void *handle, int kind, unsigned *mhz) {
    *mhz = kind == CLOCK_MEM ? 2619 : 1980;
    return SUCCESS;
}

int nvmlDeviceGetMaxClockInfo(void *handle, int kind, unsigned *mhz) { return nvmlDeviceGetClockInfo(handle, kind, mhz); }

int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *celsius) {
    *celsius = 40;
    return SUCCESS;
}

int nvmlDeviceGetPowerUsage(void *handle, unsigned *milliwatts) {
    *milliwatts = POWER_MW;
    return SUCCESS;
}

int nvmlDeviceGetTotalEnergyConsumption(void *handle, unsigned long long *millijoules) {
    struct timespec since;
    clock_gettime(CLOCK_MONOTONIC, &since);
    *millijoules = (since.tv_sec * 1000ull + since.tv_nsec / 1000000) * POWER_MW / 1000;
    return SUCCESS;
}

int nvmlDeviceGetCurrentClocksEventReasons(void *handle, unsigned long long *reasons) {
    *reasons = 0;
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, struct process *answer) {
    unsigned room = *count, found = 0;
    device_lock();
    struct device *device = devices + number_of(handle);
    device_used_bytes(device);
    for (struct holder *each = device->holders; each < device->holders + MAX_PROCESSES; each++) {
        if (!each->bytes) continue;
        if (answer && found < room) answer[found] = (struct process){each->pid, each->bytes, ~0u, ~0u};
        found++;
    }
    device_unlock();
    *count = found;
    return found > room || (found && !answer) ? INSUFFICIENT_SIZE : SUCCESS;
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *handle, unsigned *count, struct process *answer) {
    *count = 0;
    return SUCCESS;
}
