/*
 * What happens around every call: counting, latency, injected failures, garbage in out-parameters; and the control
 * functions of sim.h.
 *
 * SIM_FAIL is a list "name:when:code,..."; `when` is the number of the call that fails (1 = the first) or '*' for all.
 */
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *const names[SIM_IDS] = {
#define SIM_X(export, base, version, stream) #export,
    SIM_TABLE(SIM_X)
#undef SIM_X
};

static int id_of(const char *name, size_t length)
{
    int id;

    for (id = 0; id < SIM_IDS; id++) {
        if (strlen(names[id]) == length && memcmp(names[id], name, length) == 0) {
            return id;
        }
    }
    return -1;
}

static int add_rule(const char *name, size_t length, bool always, unsigned long long left, int code)
{
    int id = id_of(name, length);

    if (id < 0 || sim.rules == sizeof(sim.rule) / sizeof(sim.rule[0])) {
        return -1;
    }
    sim.rule[sim.rules++] = (struct sim_rule){
        .id = (enum sim_id)id, .always = always, .left = left, .code = (CUresult)code};
    return 0;
}

void sim_inject_start(void)
{
    const char *text = getenv("SIM_FAIL");

    while (text != NULL && *text != '\0') {
        const char *colon = strchr(text, ':');
        char *end;
        bool always;
        unsigned long long when;

        if (colon == NULL) {
            break;
        }
        always = colon[1] == '*';
        when = always ? 1 : strtoull(colon + 1, &end, 10);
        end = always ? (char *)colon + 2 : end;
        if (*end != ':' || when == 0 ||
            add_rule(text, (size_t)(colon - text), always, when - 1, (int)strtol(end + 1, &end, 10)) != 0) {
            fprintf(stderr, "simulated driver: SIM_FAIL not understood at \"%s\"\n", text);
            break;
        }
        text = *end == ',' ? end + 1 : NULL;
    }
}

static CUresult injected(enum sim_id id)
{
    unsigned int i;

    for (i = 0; i < sim.rules; i++) {
        struct sim_rule *rule = &sim.rule[i];
        CUresult code = rule->code;

        if (rule->id != id) {
            continue;
        }
        if (!rule->always) {
            if (rule->left-- > 0) {
                continue;
            }
            sim.rules--;
            memmove(rule, rule + 1, (sim.rules - i) * sizeof(*rule));
        }
        return code;
    }
    return CUDA_SUCCESS;
}

static void busy_wait(unsigned long long nanoseconds)
{
    struct timespec start, now;

    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((unsigned long long)((now.tv_sec - start.tv_sec) * 1000000000 + now.tv_nsec - start.tv_nsec) <
             nanoseconds);
}

CUresult sim_enter_early(enum sim_id id)
{
    unsigned long long latency = __atomic_load_n(&sim.latency_ns, __ATOMIC_RELAXED);

    if (latency != 0) {
        busy_wait(latency);
    }
    pthread_mutex_lock(&sim.lock);
    sim.calls[id]++;
    return sim.rules == 0 ? CUDA_SUCCESS : injected(id);
}

CUresult sim_enter(enum sim_id id)
{
    CUresult result = sim_enter_early(id);

    if (sim.shut_down) {
        return CUDA_ERROR_DEINITIALIZED;
    }
    if (!sim.initialised) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    return result;
}

CUresult sim_leave(CUresult result, void *out, size_t out_bytes)
{
    bool garbage = sim.garbage;

    pthread_mutex_unlock(&sim.lock);
    if (result != CUDA_SUCCESS && garbage && out != NULL) {
        memset(out, 0xa5, out_bytes);
    }
    return result;
}

/* ---- sim.h ---- */

SIM_API int sim_fail_next(const char *name, unsigned long long after, int code)
{
    int result;

    pthread_mutex_lock(&sim.lock);
    result = add_rule(name, strlen(name), false, after, code);
    pthread_mutex_unlock(&sim.lock);
    return result;
}

SIM_API int sim_fail_always(const char *name, int code)
{
    int result;

    pthread_mutex_lock(&sim.lock);
    result = add_rule(name, strlen(name), true, 0, code);
    pthread_mutex_unlock(&sim.lock);
    return result;
}

SIM_API void sim_fail_clear(void)
{
    pthread_mutex_lock(&sim.lock);
    sim.rules = 0;
    pthread_mutex_unlock(&sim.lock);
}

SIM_API void sim_set_garbage(int on)
{
    pthread_mutex_lock(&sim.lock);
    sim.garbage = on != 0;
    pthread_mutex_unlock(&sim.lock);
}

SIM_API void sim_set_latency(unsigned long long nanoseconds)
{
    __atomic_store_n(&sim.latency_ns, nanoseconds, __ATOMIC_RELAXED);
}

SIM_API unsigned long long sim_calls(const char *name)
{
    int id = id_of(name, strlen(name));
    unsigned long long count = 0;

    pthread_mutex_lock(&sim.lock);
    if (id >= 0) {
        count = sim.calls[id];
    }
    pthread_mutex_unlock(&sim.lock);
    return count;
}

SIM_API void sim_reset_counters(void)
{
    pthread_mutex_lock(&sim.lock);
    memset(sim.calls, 0, sizeof(sim.calls));
    pthread_mutex_unlock(&sim.lock);
}

/* One figure of one device, or 0 for a device that doesn't exist. */
static unsigned long long device_figure(int device, size_t offset)
{
    unsigned long long value = 0;

    pthread_mutex_lock(&sim.lock);
    if (device >= 0 && device < sim.device_count) {
        value = *(size_t *)((char *)&sim.device[device] + offset);
    }
    pthread_mutex_unlock(&sim.lock);
    return value;
}

SIM_API unsigned long long sim_device_used(int device)
{
    return device_figure(device, offsetof(struct sim_device, used));
}

SIM_API unsigned long long sim_device_others(int device)
{
    return device_figure(device, offsetof(struct sim_device, others));
}

SIM_API unsigned long long sim_device_total(int device)
{
    return device_figure(device, offsetof(struct sim_device, total));
}

SIM_API unsigned long long sim_live_bytes(int device)
{
    return device_figure(device, offsetof(struct sim_device, live_bytes));
}

SIM_API unsigned long long sim_live_count(int device)
{
    return device_figure(device, offsetof(struct sim_device, live_count));
}

SIM_API void sim_other_process_bytes(int device, unsigned long long bytes)
{
    pthread_mutex_lock(&sim.lock);
    if (device >= 0 && device < sim.device_count) {
        sim.device[device].others = bytes;
    }
    pthread_mutex_unlock(&sim.lock);
}

SIM_API void sim_set_free(int device, unsigned long long bytes)
{
    pthread_mutex_lock(&sim.lock);
    if (device >= 0 && device < sim.device_count) {
        struct sim_device *d = &sim.device[device];

        d->others = d->total - d->used > bytes ? d->total - d->used - bytes : 0;
    }
    pthread_mutex_unlock(&sim.lock);
}

SIM_API unsigned long long sim_pinned_bytes(void)
{
    unsigned long long bytes;

    pthread_mutex_lock(&sim.lock);
    bytes = sim.pinned_bytes;
    pthread_mutex_unlock(&sim.lock);
    return bytes;
}

SIM_API unsigned int sim_contexts(void)
{
    unsigned int count = 0;
    struct sim_ctx *ctx;

    pthread_mutex_lock(&sim.lock);
    for (ctx = sim.contexts; ctx != NULL; ctx = ctx->next) {
        count++;
    }
    pthread_mutex_unlock(&sim.lock);
    return count;
}
