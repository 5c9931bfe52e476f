/* A driver's libnvidia-ml.so.1, as far as polybench calls it, with the declarations of NVIDIA's nvml.h.
 *
 * nvml_library.py compiles it with cards.h, the table of cards. NVML_LOST_AFTER and NVML_HANG_AFTER (environment) are
 * numbers of readings after which the GPU is lost or a call never returns. OLD_DRIVER leaves out functions of driver 535.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int nvmlReturn_t;
enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, INSUFFICIENT_SIZE = 7, GPU_IS_LOST = 15 };

typedef struct { unsigned gpu, memory; } nvmlUtilization_t;
typedef struct { unsigned long long total, free, used; } nvmlMemory_t;
typedef struct { unsigned pid; unsigned long long usedGpuMemory; unsigned gpuInstanceId, computeInstanceId; } nvmlProcessInfo_t;

typedef struct {
    const char *name, *uuid;
    struct { nvmlReturn_t refused; nvmlUtilization_t value; } utilization;
    struct { nvmlReturn_t refused; unsigned value; } power;
    struct { nvmlReturn_t refused; unsigned long long value; } energy;
    struct { nvmlReturn_t refused; unsigned sm, memory; } clocks;
    struct { nvmlReturn_t refused; unsigned value; } temperature;
    struct { nvmlReturn_t refused; unsigned long long value; } throttling;
    struct { nvmlReturn_t refused; nvmlMemory_t value; } memory;
    struct { nvmlReturn_t refused; unsigned count; nvmlProcessInfo_t value[4]; } processes;
} Card;
typedef const Card *nvmlDevice_t;

#include "cards.h" /* static const Card cards[] */
#define COUNT (sizeof cards / sizeof *cards)

static int sessions, readings;

static int passed(const char *variable) {
    const char *limit = getenv(variable);
    return limit && readings > atoi(limit);
}

static nvmlReturn_t check(nvmlDevice_t device) {
    if (!sessions) return UNINITIALIZED;
    if (device < cards || device >= cards + COUNT) return INVALID_ARGUMENT;
    readings++;
    while (passed("NVML_HANG_AFTER")) pause();
    return passed("NVML_LOST_AFTER") ? GPU_IS_LOST : SUCCESS;
}

static nvmlReturn_t copy(const char *from, char *to, unsigned size) {
    if (strlen(from) >= size) return INSUFFICIENT_SIZE;
    strcpy(to, from);
    return SUCCESS;
}

#define READ(function, type, field)                                  \
    nvmlReturn_t function(nvmlDevice_t device, type *value) {        \
        nvmlReturn_t problem = check(device);                        \
        if (problem || (problem = device->field.refused)) return problem; \
        *value = device->field.value;                                \
        return SUCCESS;                                              \
    }

nvmlReturn_t nvmlInitWithFlags(unsigned flags) { return sessions++, flags ? INVALID_ARGUMENT : SUCCESS; }
nvmlReturn_t nvmlShutdown(void) { return sessions ? sessions--, SUCCESS : UNINITIALIZED; }
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) { return *count = COUNT, sessions ? SUCCESS : UNINITIALIZED; }

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device) {
    if (!sessions) return UNINITIALIZED;
    if (index >= COUNT) return INVALID_ARGUMENT;
    *device = cards + index;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned size) { return copy(device->name, name, size); }
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned size) { return copy(device->uuid, uuid, size); }

READ(nvmlDeviceGetUtilizationRates, nvmlUtilization_t, utilization)
READ(nvmlDeviceGetPowerUsage, unsigned, power)
READ(nvmlDeviceGetMemoryInfo, nvmlMemory_t, memory)
READ(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, throttling)
#ifndef OLD_DRIVER
READ(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, throttling)
#endif

nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *millijoules) {
    static unsigned long long added; /* 100 J between two readings */
    nvmlReturn_t problem = check(device);
    if (problem || (problem = device->energy.refused)) return problem;
    *millijoules = device->energy.value + added;
    added += 100000;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, int type, unsigned *clock) {
    nvmlReturn_t problem = check(device);
    if (problem || (problem = device->clocks.refused)) return problem;
    if (type != 1 && type != 2) return INVALID_ARGUMENT;
    *clock = type == 1 ? device->clocks.sm : device->clocks.memory;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, int sensor, unsigned *value) {
    nvmlReturn_t problem = check(device);
    if (problem || (problem = device->temperature.refused)) return problem;
    if (sensor != 0) return INVALID_ARGUMENT;
    *value = device->temperature.value;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *infos) {
    nvmlReturn_t problem = check(device);
    if (problem || (problem = device->processes.refused)) return problem;
    unsigned size = *count;
    *count = device->processes.count;
    if (size < *count) return INSUFFICIENT_SIZE;
    if (infos) memcpy(infos, device->processes.value, *count * sizeof *infos);
    return SUCCESS;
}
