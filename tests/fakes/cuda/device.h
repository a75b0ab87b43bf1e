/* GPUs that are only counts of bytes: who holds how much of each, in a file that all their processes share.
 *
 * Memory of a device is address space of the process, so a model of any size "fits" up to the device's size, and costs
 * main memory only where somebody writes to it, which nobody does: see runtime.c. */
#ifndef GGBENCH_STAND_IN_DEVICE_H
#define GGBENCH_STAND_IN_DEVICE_H

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#define DEVICE_NAME "Stand-in GPU"
#define DEVICE_UUID "GPU-00000000-0000-0000-0000-00000000000%hhd" /* of the number that NVML counts, from 0 */
#define DEVICE_BUS_ID "00000000:0%hhd:00.0"
#define MAX_DEVICES 4
#define DEVICE_DRIVER "0.0 stand-in"
#define MIB (1ull << 20)
#define CONTEXT_BYTES (500 * MIB)  /* what a process costs before it allocates anything: a round figure */
#define RESERVED_BYTES (600 * MIB) /* the driver's own: as on the A100 of tests/data/nvml, 605 MiB */
#define MAX_PROCESSES 64

struct device {
    uint64_t total_bytes;
    struct holder {
        int64_t pid;
        uint64_t bytes;
    } holders[MAX_PROCESSES];
};

static struct device *devices;
static int devices_fd = -1;

static int device_count(void) {
    const char *count = getenv("STAND_IN_GPUS");
    int wanted = count ? atoi(count) : 1;
    return wanted < MAX_DEVICES ? wanted : MAX_DEVICES;
}

static void device_lock(void) {
    if (!devices) {
        const char *mib = getenv("STAND_IN_GPU_MIB");
        size_t bytes = MAX_DEVICES * sizeof *devices;
        devices_fd = open(getenv("STAND_IN_GPU_FILE"), O_RDWR | O_CREAT, 0600);
        if (devices_fd < 0 || ftruncate(devices_fd, bytes)) abort();
        devices = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, devices_fd, 0);
        if (devices == MAP_FAILED) abort();
        for (int number = 0; number < MAX_DEVICES; number++)
            devices[number].total_bytes = (mib ? strtoull(mib, NULL, 10) : 81920) * MIB;
    }
    flock(devices_fd, LOCK_EX);
}

static void device_unlock(void) { flock(devices_fd, LOCK_UN); }

/* Forgets processes that are gone, as a driver frees what they held. */
static uint64_t device_used_bytes(struct device *device) {
    uint64_t used = RESERVED_BYTES;
    for (struct holder *each = device->holders; each < device->holders + MAX_PROCESSES; each++) {
        if (each->pid && kill((pid_t)each->pid, 0) && errno == ESRCH) each->pid = 0, each->bytes = 0;
        used += each->bytes;
    }
    return used;
}

static struct holder *device_holder(struct device *device) {
    struct holder *unused = NULL;
    for (struct holder *each = device->holders; each < device->holders + MAX_PROCESSES; each++) {
        if (each->pid == getpid()) return each;
        if (!each->pid && !unused) unused = each;
    }
    if (!unused) abort();
    unused->pid = getpid();
    return unused;
}

/* Whether there was room. */
static int device_take(int number, uint64_t bytes) {
    device_lock();
    struct device *device = devices + number;
    int fits = device_used_bytes(device) + bytes <= device->total_bytes;
    if (fits) device_holder(device)->bytes += bytes;
    device_unlock();
    return fits;
}

static void device_give(int number, uint64_t bytes) {
    device_lock();
    device_holder(devices + number)->bytes -= bytes;
    device_unlock();
}

static void device_memory(int number, uint64_t *free_bytes, uint64_t *total_bytes) {
    device_lock();
    *total_bytes = devices[number].total_bytes;
    *free_bytes = *total_bytes - device_used_bytes(devices + number);
    device_unlock();
}

/* The devices that CUDA_VISIBLE_DEVICES names by number or UUID, in its order; how many. */
static int visible_devices(int numbers[MAX_DEVICES]) {
    const char *names = getenv("CUDA_VISIBLE_DEVICES");
    int count = 0;
    if (!names) {
        for (; count < device_count(); count++) numbers[count] = count;
        return count;
    }
    while (*names && count < MAX_DEVICES) {
        size_t length = strcspn(names, ",");
        int number = strncmp(names, "GPU-", 4) ? atoi(names) : names[length - 1] - '0';
        if (number < 0 || number >= device_count()) break;
        numbers[count++] = number;
        names += length + (names[length] == ',');
    }
    return count;
}

/* What CUDA counts as `ordinal`; -1 where there is none. */
static int visible_device(int ordinal) {
    int numbers[MAX_DEVICES];
    return ordinal >= 0 && ordinal < visible_devices(numbers) ? numbers[ordinal] : -1;
}

static void *address_space(uint64_t bytes) {
    void *place = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return place == MAP_FAILED ? NULL : place;
}

#endif
