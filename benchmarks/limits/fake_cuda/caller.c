/* SPDX-License-Identifier: Apache-2.0 */
/* Stands for libtorch_cuda: calls the runtime (or, with -DDRIVER, the driver) by its dynamic symbols. */
#include <stddef.h>

#ifdef DRIVER
#define NAME(runtime, driver) driver
#else
#define NAME(runtime, driver) runtime
#endif
int NAME(cudaStreamSynchronize, cuStreamSynchronize)(void *);
int NAME(cudaDeviceSynchronize, cuCtxSynchronize)(void);
int NAME(cudaEventSynchronize, cuEventSynchronize)(void *);
int NAME(cudaMalloc, cuMemAlloc_v2)(void **, size_t);
int NAME(cudaFree, cuMemFree_v2)(void *);
#ifndef DRIVER
int cudaMemcpy(void *, const void *, size_t, int);
int cudaMemcpyAsync(void *, const void *, size_t, int, void *);
#else
int cuMemcpyHtoDAsync_v2(unsigned long, const void *, size_t, void *);
#endif
int NAME(cudaLaunchKernel, cuLaunchKernel)(const void *);
int NAME(cudaGraphLaunch, cuGraphLaunch)(void *);

static volatile int last; /* keeps calls from being tail calls, as a check of the result does */

int synchronize_stream(void) {
    return last = NAME(cudaStreamSynchronize, cuStreamSynchronize)(0);
}
int synchronize_device(void) { /* a tail call: it returns to the caller's caller */
    return NAME(cudaDeviceSynchronize, cuCtxSynchronize)();
}
int synchronize_event(void) {
    return last = NAME(cudaEventSynchronize, cuEventSynchronize)(0);
}
int many(int calls) {
    for (int i = 0; i < calls; i++)
        last = NAME(cudaStreamSynchronize, cuStreamSynchronize)(0);
    return last;
}
void *allocate(size_t size, int *error) {
    void *block = 0;
    *error = NAME(cudaMalloc, cuMemAlloc_v2)(&block, size);
    return *error ? 0 : block;
}
int release(void *block) {
    return last = NAME(cudaFree, cuMemFree_v2)(block);
}
#ifndef DRIVER
int item(void) {
    char to[8], from[8];
    return last = cudaMemcpyAsync(to, from, 8, 2, 0);
}
int upload(void) {
    char to[8], from[8];
    return last = cudaMemcpyAsync(to, from, 8, 1, 0);
}
int copy(void) {
    char to[8], from[8];
    return last = cudaMemcpy(to, from, 8, 2);
}
#else
int upload(void) {
    char from[8];
    return last = cuMemcpyHtoDAsync_v2(0, from, 8, 0);
}
#endif
int launch(void) {
    return last = NAME(cudaLaunchKernel, cuLaunchKernel)((void *)launch);
}
int launch_kernels(int times, int kernels) {
    for (int i = 0; i < kernels * times; i++)
        last = NAME(cudaLaunchKernel, cuLaunchKernel)((char *)launch + i % kernels);
    return last;
}
int launch_step(int kernels, int layers) { /* the first kernels come in each layer too, the others once a step */
    launch_kernels(layers, kernels);
    return launch_kernels(1, 2 * kernels);
}
int launch_graph(void) {
    return last = NAME(cudaGraphLaunch, cuGraphLaunch)((void *)launch_graph);
}
