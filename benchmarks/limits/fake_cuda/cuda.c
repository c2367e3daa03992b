/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of CUDA that wait as the real ones do, for a GPU whose work is on paper. Built twice: as the runtime
 * (libcudart.so.12) and, with -DDRIVER, as the driver's library (libcuda.so.1). */
#include <linux/futex.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifdef DRIVER
#define NAME(runtime, driver) driver
#else
#define NAME(runtime, driver) runtime
#endif

static int64_t busy_until, used, room = 1ll << 34, memory_ns, kernel_ns, queue_ns = 1ll << 60;
static int how; /* cudaDeviceSchedule…: 0 and 1 spin, 2 yields, 4 sleeps */

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}
static void spin_until(int64_t end) {
    while (now() < end)
        ;
}
static void wait_until(int64_t end) {
    uint32_t word = 0;
    for (int64_t left; (left = end - now()) > 0;) {
        struct timespec t = {left / 1000000000, left % 1000000000};
        if (how == 4)
            syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &t, 0, 0);
        else if (how == 2)
            sched_yield();
    }
}

void fake_launch(double seconds) {
    int64_t start = now();
    __atomic_store_n(&busy_until, (busy_until > start ? busy_until : start) + (int64_t)(seconds * 1e9), __ATOMIC_SEQ_CST);
}
void fake_memory(int64_t bytes, double seconds_each) {
    room = bytes;
    memory_ns = seconds_each * 1e9;
}
int cudaSetDeviceFlags(unsigned flags) {
    how = flags & 7;
    return 0;
}
int NAME(cudaStreamSynchronize, cuStreamSynchronize)(void *stream) {
    (void)stream;
    wait_until(busy_until);
    return 0;
}
int NAME(cudaDeviceSynchronize, cuCtxSynchronize)(void) {
    return NAME(cudaStreamSynchronize, cuStreamSynchronize)(0);
}
int NAME(cudaEventSynchronize, cuEventSynchronize)(void *event) {
    return NAME(cudaStreamSynchronize, cuStreamSynchronize)(event);
}
int NAME(cudaMalloc, cuMemAlloc_v2)(void **pointer, size_t size) {
    spin_until(now() + memory_ns);
    if (used + (int64_t)size > room)
        return 2; /* cudaErrorMemoryAllocation, CUDA_ERROR_OUT_OF_MEMORY */
    used += size;
    int64_t *block = malloc(16);
    *block = size;
    *pointer = block;
    return 0;
}
int NAME(cudaFree, cuMemFree_v2)(void *pointer) {
    wait_until(busy_until);
    spin_until(now() + memory_ns);
    if (pointer)
        used -= *(int64_t *)pointer;
    free(pointer);
    return 0;
}
/* A kernel takes the GPU so long; what launches one waits while the GPU has more to do than fits its queue. */
void fake_kernels(double seconds_each, double seconds_queued) {
    kernel_ns = seconds_each * 1e9;
    queue_ns = seconds_queued * 1e9;
}
int NAME(cudaLaunchKernel, cuLaunchKernel)(const void *function) {
    (void)function;
    if (kernel_ns) {
        wait_until(busy_until - queue_ns);
        fake_launch(kernel_ns / 1e9);
    }
    return 0;
}
int NAME(cudaGraphLaunch, cuGraphLaunch)(void *graph) {
    return NAME(cudaLaunchKernel, cuLaunchKernel)(graph);
}
#ifdef DRIVER
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t size, void *stream) {
    (void)to, (void)from, (void)size, (void)stream;
    return 0;
}
#endif
#ifndef DRIVER
int cudaMemcpy(void *to, const void *from, size_t size, int kind) {
    (void)to, (void)from, (void)size, (void)kind;
    return cudaStreamSynchronize(0);
}
int cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, void *stream) {
    return kind == 2 ? cudaMemcpy(to, from, size, kind) : stream != 0;
}
#endif
