/* A libnvidia-ml.so.1 whose GPUs are described by a file (FAKE_NVML), read at every call: lines "GPU NAME VALUE".
 * VALUE is what the function returns, or "!N" for error N; "hang" does not return while the file says so. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct { unsigned index; } device;
static device devices[8] = {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}};
enum { SUCCESS = 0, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7 };

static int look(unsigned gpu, const char *name, unsigned long long *value) {
    char line[256], found[64], text[64];
    unsigned number;
    int result = NOT_SUPPORTED;
    FILE *file = fopen(getenv("FAKE_NVML"), "r");
    if (!file)
        return 9;
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%u %63s %63s", &number, found, text) != 3 || number != gpu || strcmp(found, name))
            continue;
        if (!strcmp(text, "hang")) {
            fclose(file);
            usleep(20000);
            return look(gpu, name, value);
        }
        if (text[0] == '!') {
            result = atoi(text + 1);
        } else {
            *value = strtoull(text, 0, 0);
            result = SUCCESS;
        }
        break;
    }
    fclose(file);
    return result;
}
static int number(device *d, const char *name, unsigned *out) {
    unsigned long long value = 0;
    int result = look(d->index, name, &value);
    if (!result)
        *out = value;
    return result;
}

int nvmlInitWithFlags(unsigned flags) {
    unsigned long long value = 0;
    int result = look(99, "init", &value);
    return result == NOT_SUPPORTED ? SUCCESS : result;
}
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int error) { return "fake"; }
int nvmlDeviceGetCount_v2(unsigned *count) {
    unsigned long long value = 0;
    int result = look(99, "count", &value);
    *count = value;
    return result;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, device **out) {
    unsigned long long value = 0;
    int result = look(index, "handle", &value);
    *out = &devices[index];
    return result == NOT_SUPPORTED ? SUCCESS : result;
}
int nvmlDeviceGetUUID(device *d, char *out, unsigned length) {
    snprintf(out, length, "GPU-%04u", d->index);
    return SUCCESS;
}
typedef struct {
    char old[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
} pci;
int nvmlDeviceGetPciInfo_v3(device *d, pci *out) {
    memset(out, 0, sizeof *out);
    snprintf(out->bus_id, 32, "00000000:%02X:00.0", d->index + 1);
    return SUCCESS;
}
int nvmlDeviceGetMemoryInfo(device *d, unsigned long long *out) { /* total, free, used */
    int result = look(d->index, "memory_total", &out[0]);
    if (!result)
        result = look(d->index, "memory_used", &out[2]);
    out[1] = out[0] - out[2];
    return result;
}
typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} memory;
int nvmlDeviceGetMemoryInfo_v2(device *d, memory *out) { /* what is used without what the driver has for itself */
    unsigned long long whole[3];
    int result = look(d->index, "memory_reserved", &out->reserved);
    if (!result)
        result = nvmlDeviceGetMemoryInfo(d, whole);
    if (result)
        return result;
    out->total = whole[0];
    out->free = whole[1];
    out->used = whole[2] - out->reserved;
    return SUCCESS;
}
int nvmlDeviceGetUtilizationRates(device *d, unsigned *out) {
    out[1] = 0;
    return number(d, "utilization", out);
}
typedef struct {
    unsigned long long at;
    union { unsigned ui; double d; unsigned long long ull; } value;
} sample;
int nvmlDeviceGetSamples(device *d, int kind, unsigned long long last, int *type, unsigned *count, sample *out) {
    unsigned value;
    struct timespec now;
    int result = number(d, "samples", &value);
    if (result)
        return result;
    *type = 1;
    clock_gettime(CLOCK_REALTIME, &now);
    unsigned long long us = now.tv_sec * 1000000ull + now.tv_nsec / 1000;
    unsigned n = 5;
    if (out)
        for (unsigned i = 0; i < n && i < *count; i++) {
            out[i].at = us - (n - i) * 1000;
            out[i].value.ui = value;
        }
    *count = n;
    return SUCCESS;
}
int nvmlDeviceGetPowerUsage(device *d, unsigned *out) { return number(d, "power", out); }
int nvmlDeviceGetTemperature(device *d, int sensor, unsigned *out) { return number(d, "temperature", out); }
int nvmlDeviceGetClockInfo(device *d, int kind, unsigned *out) { return number(d, "clock", out); }
int nvmlDeviceGetMaxClockInfo(device *d, int kind, unsigned *out) { return number(d, "clock_max", out); }
int nvmlDeviceGetPcieThroughput(device *d, int counter, unsigned *out) { return number(d, "pcie", out); }
int nvmlDeviceGetCurrentClocksEventReasons(device *d, unsigned long long *out) { return look(d->index, "reasons", out); }
int nvmlDeviceGetTotalEccErrors(device *d, int kind, int counter, unsigned long long *out) {
    return look(d->index, "ecc", out);
}
int nvmlDeviceGetMigMode(device *d, unsigned *now, unsigned *pending) {
    *pending = 0;
    return number(d, "mig", now);
}
int nvmlDeviceGetRemappedRows(device *d, unsigned *a, unsigned *b, unsigned *c, unsigned *e) {
    *a = *c = *e = 0;
    return number(d, "rows", b);
}
typedef struct {
    unsigned pid;
    unsigned long long used;
    unsigned instance, compute;
} process;
int nvmlDeviceGetComputeRunningProcesses_v3(device *d, unsigned *count, process *out) {
    unsigned long long pid = 0, used = 0;
    int result = look(d->index, "pid", &pid);
    if (result)
        return result;
    if (!pid) {
        *count = 0;
        return SUCCESS;
    }
    unsigned long long other = 0;
    look(d->index, "other_pid", &other);
    unsigned there = other ? 2 : 1;
    if (!out || *count < there) {
        *count = there;
        return INSUFFICIENT_SIZE;
    }
    look(d->index, "pid_memory", &used);
    out[0].pid = pid;
    out[0].used = used;
    if (other) {
        out[1].pid = other;
        out[1].used = used;
    }
    *count = there;
    return SUCCESS;
}

/* Two samples of "other_pid", of "other_busy" per cent (0: none), and none of "pid": it ran no kernel. */
typedef struct { unsigned pid; unsigned long long at; unsigned sm, memory, encoder, decoder; } use;
int nvmlDeviceGetProcessUtilization(device *d, use *out, unsigned *count, unsigned long long last) {
    unsigned long long other = 0, busy = 0;
    int result = look(d->index, "other_busy", &busy);
    if (result)
        return result;
    look(d->index, "other_pid", &other);
    if (!busy) {
        *count = 0;
        return SUCCESS;
    }
    if (!out || *count < 2) {
        *count = 2;
        return INSUFFICIENT_SIZE;
    }
    for (unsigned i = 0; i < 2; i++)
        out[i] = (use){other, last + 1 + i, busy, 0, 0, 0};
    *count = 2;
    return SUCCESS;
}

/* GPM, between two samples: "tensor" and "busy" are percentages, "receive" and "transmit" MiB a second; "gpm_samples"
 * bounds how many may be had at once (unset: any). */
typedef struct { unsigned taken; } gpm_sample;
static unsigned gpm_samples;
int nvmlGpmQueryDeviceSupport(device *d, unsigned *out) { /* version, isSupportedDevice */
    unsigned value;
    int result = number(d, "tensor", &value);
    out[1] = !result;
    return result == NOT_SUPPORTED ? SUCCESS : result;
}
int nvmlGpmSampleAlloc(gpm_sample **out) {
    unsigned long long most = 0;
    if (!look(99, "gpm_samples", &most) && gpm_samples >= most)
        return 20; /* NVML_ERROR_MEMORY */
    gpm_samples++;
    *out = calloc(1, sizeof **out);
    return SUCCESS;
}
int nvmlGpmSampleFree(gpm_sample *sample) {
    gpm_samples--;
    free(sample);
    return SUCCESS;
}
int nvmlGpmSampleGet(device *d, gpm_sample *sample) {
    unsigned value;
    static unsigned taken;
    sample->taken = ++taken << 8 | d->index;
    return number(d, "tensor", &value);
}
typedef struct {
    unsigned id;
    int result;
    double value;
    char *names[3];
} gpm_metric;
typedef struct {
    unsigned version, count;
    gpm_sample *first, *second;
    gpm_metric metrics[];
} gpm_metrics;
int nvmlGpmMetricsGet(gpm_metrics *asked) {
    unsigned long long value = 0;
    if (asked->version != 1 || asked->first->taken >= asked->second->taken)
        return 2; /* NVML_ERROR_INVALID_ARGUMENT */
    for (unsigned i = 0; i < asked->count; i++) {
        unsigned id = asked->metrics[i].id;
        const char *name = id == 1 ? "busy" : id == 5 ? "tensor" : id == 20 ? "transmit" : id == 21 ? "receive" : "";
        asked->metrics[i].result = look(asked->second->taken & 0xff, name, &value);
        asked->metrics[i].value = value;
    }
    return SUCCESS;
}
