/* A GPU that is only a count of bytes: who holds how much of it, in a file that all its processes share.
 *
 * Memory of the device is address space of the process, so a model of any size "fits" up to the device's size, and
 * costs main memory only where somebody writes to it, which nobody does: see runtime.c. */
#ifndef GGBENCH_STAND_IN_DEVICE_H
#define GGBENCH_STAND_IN_DEVICE_H

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#define DEVICE_NAME "Stand-in GPU"
#define DEVICE_UUID "GPU-00000000-0000-0000-0000-000000000001"
#define DEVICE_BUS_ID "00000000:04:00.0"
#define DEVICE_DRIVER "0.0 stand-in"
#define MIB (1ull << 20)
#define CONTEXT_BYTES (500 * MIB)  /* what a process costs on a large card before it allocates anything */
#define RESERVED_BYTES (600 * MIB) /* the driver's own */
#define MAX_PROCESSES 64

struct device {
    uint64_t total_bytes;
    struct holder {
        int64_t pid;
        uint64_t bytes;
    } holders[MAX_PROCESSES];
};

static struct device *device;
static int device_fd = -1;

static void device_lock(void) {
    if (!device) {
        const char *mib = getenv("STAND_IN_GPU_MIB");
        device_fd = open(getenv("STAND_IN_GPU_FILE"), O_RDWR | O_CREAT, 0600);
        if (device_fd < 0 || ftruncate(device_fd, sizeof *device)) abort();
        device = mmap(NULL, sizeof *device, PROT_READ | PROT_WRITE, MAP_SHARED, device_fd, 0);
        if (device == MAP_FAILED) abort();
        device->total_bytes = (mib ? strtoull(mib, NULL, 10) : 81920) * MIB;
    }
    flock(device_fd, LOCK_EX);
}

static void device_unlock(void) { flock(device_fd, LOCK_UN); }

/* Forgets processes that are gone, as a driver frees what they held. */
static uint64_t device_used_bytes(void) {
    uint64_t used = RESERVED_BYTES;
    for (struct holder *each = device->holders; each < device->holders + MAX_PROCESSES; each++) {
        if (each->pid && kill((pid_t)each->pid, 0) && errno == ESRCH) each->pid = 0, each->bytes = 0;
        used += each->bytes;
    }
    return used;
}

static struct holder *device_holder(void) {
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
static int device_take(uint64_t bytes) {
    device_lock();
    int fits = device_used_bytes() + bytes <= device->total_bytes;
    if (fits) device_holder()->bytes += bytes;
    device_unlock();
    return fits;
}

static void device_give(uint64_t bytes) {
    device_lock();
    device_holder()->bytes -= bytes;
    device_unlock();
}

static void device_memory(uint64_t *free_bytes, uint64_t *total_bytes) {
    device_lock();
    *total_bytes = device->total_bytes;
    *free_bytes = *total_bytes - device_used_bytes();
    device_unlock();
}

static void *address_space(uint64_t bytes) {
    void *place = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return place == MAP_FAILED ? NULL : place;
}

#endif
