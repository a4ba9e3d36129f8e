/* A CUDA driver without a GPU, for tests: the memory of devices is the host's, and what is put on a stream is done at once.
 * There are as many GPUs as STUB_GPUS says. Memory and streams are used in the context that they were made in, or the call
 * is refused. It runs no kernels: a launch is refused. As long as the folder STUB_FOLDER has a file `hang`, nothing that is
 * on a stream is over. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef uint64_t device_pointer;
typedef size_t handle;

enum { SUCCESS = 0, OUT_OF_MEMORY = 2, NO_DEVICE = 101, NOT_READY = 600, ILLEGAL_ADDRESS = 700, NOT_SUPPORTED = 801 };
enum { MAX_GPUS = 8 };

/* The GPU of this thread, counted from 1; its memory is a part of one region. */
static __thread handle current;
static const size_t MEMORY = (size_t)2 << 30;
static char *region;
static size_t used[MAX_GPUS + 1];

static int is_here(const void *at) {
    return (const char *)at >= region && ((const char *)at - region) / MEMORY == current;
}
static int is_foreign(handle stream) { return stream != current; }

static int gpus(void) { return atoi(getenv("STUB_GPUS")); }

int cuInit(unsigned flags) {
    static char *made;
    if (__sync_bool_compare_and_swap(&made, NULL, (char *)1))
        region = mmap(NULL, MEMORY * (MAX_GPUS + 1), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return region == MAP_FAILED ? OUT_OF_MEMORY : SUCCESS;
}
int cuDriverGetVersion(int *version) { *version = 12030; return SUCCESS; }
int cuDeviceGetCount(int *count) { *count = gpus(); return SUCCESS; }
int cuDeviceGet(int *device, int number) { *device = number; return number < gpus() ? SUCCESS : NO_DEVICE; }
int cuDeviceGetName(char *name, int length, int device) { snprintf(name, length, "a stub"); return SUCCESS; }
int cuDeviceGetAttribute(int *value, int attribute, int device) { *value = attribute == 75 ? 9 : 0; return SUCCESS; }
int cuDeviceGetUuid(char *uuid, int device) { memset(uuid, 0, 16); uuid[0] = device + 1; return SUCCESS; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = (size_t)80 << 30; return SUCCESS; }
int cuDevicePrimaryCtxRetain(handle *context, int device) { *context = 1 + device; return SUCCESS; }
int cuCtxSetCurrent(handle context) { current = context; return SUCCESS; }

int cuMemAlloc_v2(device_pointer *at, size_t bytes) {
    size_t rounded = (bytes + 255) / 256 * 256, start = __sync_fetch_and_add(&used[current], rounded);
    if (start + rounded > MEMORY) return OUT_OF_MEMORY;
    *at = (device_pointer)(region + current * MEMORY + start);
    return SUCCESS;
}
int cuMemFree_v2(device_pointer at) { return is_here((void *)at) ? SUCCESS : ILLEGAL_ADDRESS; }
int cuMemGetInfo_v2(size_t *left, size_t *total) { *left = *total = (size_t)80 << 30; return SUCCESS; }
int cuMemHostAlloc(void **at, size_t bytes, unsigned flags) { *at = malloc(bytes); return SUCCESS; }
int cuMemcpyHtoDAsync_v2(device_pointer to, const void *from, size_t bytes, handle stream) {
    if (!is_here((void *)to) || is_foreign(stream)) return ILLEGAL_ADDRESS;
    memcpy((void *)to, from, bytes);
    return SUCCESS;
}
int cuMemcpyDtoHAsync_v2(void *to, device_pointer from, size_t bytes, handle stream) {
    if (!is_here((void *)from) || is_foreign(stream)) return ILLEGAL_ADDRESS;
    memcpy(to, (void *)from, bytes);
    return SUCCESS;
}
int cuMemcpyDtoDAsync_v2(device_pointer to, device_pointer from, size_t bytes, handle stream) {
    if (!is_here((void *)to) || !is_here((void *)from) || is_foreign(stream)) return ILLEGAL_ADDRESS;
    memcpy((void *)to, (void *)from, bytes);
    return SUCCESS;
}

struct copy_2d {
    size_t from_x, from_y;
    int from_kind;
    size_t from_host;
    device_pointer from;
    size_t from_array, from_pitch, to_x, to_y;
    int to_kind;
    size_t to_host;
    device_pointer to;
    size_t to_array, to_pitch, width, height;
};
int cuMemcpy2DAsync_v2(const struct copy_2d *copy, handle stream) {
    if (!is_here((void *)copy->to) || !is_here((void *)copy->from) || is_foreign(stream)) return ILLEGAL_ADDRESS;
    for (size_t row = 0; row < copy->height; row++)
        memcpy((char *)copy->to + row * copy->to_pitch, (char *)copy->from + row * copy->from_pitch, copy->width);
    return SUCCESS;
}
int cuMemsetD8Async(device_pointer at, unsigned char value, size_t count, handle stream) {
    if (!is_here((void *)at) || is_foreign(stream)) return ILLEGAL_ADDRESS;
    memset((void *)at, value, count);
    return SUCCESS;
}
int cuMemsetD32Async(device_pointer at, uint32_t value, size_t count, handle stream) {
    if (!is_here((void *)at) || is_foreign(stream)) return ILLEGAL_ADDRESS;
    for (size_t n = 0; n < count; n++) ((uint32_t *)at)[n] = value;
    return SUCCESS;
}

int cuModuleLoadData(handle *module, const void *image) { *module = 1; return SUCCESS; }
int cuModuleUnload(handle module) { return SUCCESS; }
int cuModuleGetFunction(handle *function, handle module, const char *name) { *function = 1; return SUCCESS; }
int cuFuncSetAttribute(handle function, int attribute, int value) { return SUCCESS; }
int cuLaunchKernel(void) { return NOT_SUPPORTED; }
int cuLaunchKernelEx(void) { return NOT_SUPPORTED; }

/* A stream has the number of its GPU. */
int cuStreamCreate(handle *stream, unsigned flags) { *stream = current; return SUCCESS; }
int cuStreamSynchronize(handle stream) { return is_foreign(stream) ? ILLEGAL_ADDRESS : SUCCESS; }
int cuStreamWaitEvent(handle stream, handle event, unsigned flags) { return SUCCESS; }
int cuEventCreate(handle *event, unsigned flags) { *event = 1; return SUCCESS; }
int cuEventDestroy_v2(handle event) { return SUCCESS; }
int cuEventRecord(handle event, handle stream) { return is_foreign(stream) ? ILLEGAL_ADDRESS : SUCCESS; }
int cuEventQuery(handle event) {
    char file[4096];
    snprintf(file, sizeof file, "%s/hang", getenv("STUB_FOLDER"));
    return access(file, F_OK) == 0 ? NOT_READY : SUCCESS;
}
int cuEventElapsedTime(float *milliseconds, handle begin, handle end) { *milliseconds = 0; return SUCCESS; }
int cuStreamBeginCapture_v2(void) { return NOT_SUPPORTED; }
int cuStreamEndCapture(void) { return NOT_SUPPORTED; }
int cuGraphInstantiateWithFlags(void) { return NOT_SUPPORTED; }
int cuGraphExecUpdate_v2(void) { return NOT_SUPPORTED; }
int cuGraphLaunch(void) { return NOT_SUPPORTED; }
int cuGraphDestroy(void) { return SUCCESS; }
int cuGraphExecDestroy(void) { return SUCCESS; }
int cuGetErrorName(int status, const char **text) { *text = "STUB"; return SUCCESS; }
int cuGetErrorString(int status, const char **text) { *text = "the stub of a driver"; return SUCCESS; }
