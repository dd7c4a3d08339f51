/*
 * Self-test of the simulated GPU: start, lookup, failures, processes.  Memory is tested in selftest_memory.c,
 * graphs, contexts and sharing in selftest_objects.c, the runtime in selftest_runtime.c.  The same program is linked with the dynamic and with the static runtime.
 *
 * Exit status 0 if everything holds, else 1, with one line per failed check on standard error.
 */
#include "selftest.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int failures;
static const char *self;

static const struct {
    const char *export_name, *base;
    int version, per_thread;
} table[] = {
#define SIM_X(export, base, version, per_thread) {#export, #base, version, per_thread},
    SIM_TABLE(SIM_X)
#undef SIM_X
};

#define ENTRIES (sizeof(table) / sizeof(table[0]))

/* ---- finding functions; runs before cuInit ---- */

static void *address(const char *name)
{
    static void *driver;

    if (driver == NULL) {
        driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    }
    return dlsym(driver, name);
}

static void *ask(const char *name, int version, cuuint64_t flags)
{
    CUdriverProcAddressQueryResult status;
    void *found = NULL;

    OK(cuGetProcAddress_v2(name, &found, version, flags, &status));
    EQ(status == CU_GET_PROC_ADDRESS_SUCCESS, found != NULL);
    return found;
}

static void lookup_table(void)
{
    size_t i, j;

    for (i = 0; i < ENTRIES; i++) {
        void *exported = address(table[i].export_name), *found = NULL;

        TRUE(exported != NULL);
        TRUE(ask(table[i].base, table[i].version, table[i].per_thread ? 2 : 1) == exported);
        OK(cuGetProcAddress(table[i].base, &found, table[i].version, table[i].per_thread ? 2 : 0));
        TRUE(found == exported);
        for (j = 0; j < i; j++) {
            TRUE(address(table[j].export_name) != exported);
        }
    }
}

void test_lookup(void)
{
    CUdriverProcAddressQueryResult status;
    void *found = &found;
    CUdeviceptr p;
    int version;

    EQ(cuMemAlloc_v2(&p, 1), CUDA_ERROR_NOT_INITIALIZED);
    OK(cuDriverGetVersion(&version));
    EQ(version, 13000);
    lookup_table();
    TRUE(ask("cuMemAlloc", 3010, 0) == address("cuMemAlloc"));
    TRUE(ask("cuMemAlloc", 3020, 0) == address("cuMemAlloc_v2"));
    TRUE(ask("cuMemAlloc", 13000, 2) == address("cuMemAlloc_v2"));
    TRUE(ask("cuCtxCreate", 12000, 0) == address("cuCtxCreate_v3"));
    TRUE(ask("cuCtxCreate", 12050, 0) == address("cuCtxCreate_v4"));
    TRUE(ask("cuGetProcAddress", 11030, 0) == address("cuGetProcAddress"));
    TRUE(ask("cuGetProcAddress", 12000, 0) == address("cuGetProcAddress_v2"));
    TRUE(ask("cuMemAllocAsync", 11020, 0) == address("cuMemAllocAsync"));
    TRUE(ask("cuMemAllocAsync", 11020, 2) == address("cuMemAllocAsync_ptsz"));
    TRUE((void *)cuMemAlloc_v2 == address("cuMemAlloc_v2"));

    OK(cuGetProcAddress_v2("cuMemAllocAsync", &found, 11010, 0, &status));
    EQ(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    TRUE(found == NULL);
    OK(cuGetProcAddress_v2("cuMemAlloc_v2", &found, 12000, 0, &status));
    EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    OK(cuGetProcAddress_v2("cuInit", &found, 2000, 0, NULL));
    EQ(cuGetProcAddress("cuNoSuchFunction", &found, 12000, 0), CUDA_ERROR_NOT_FOUND);
    EQ(cuGetProcAddress("", &found, 0, 0), CUDA_ERROR_INVALID_VALUE);
    EQ(cuGetProcAddress_v2("", &found, 0, 0, NULL), CUDA_ERROR_INVALID_VALUE);
    EQ(cuGetProcAddress_v2("cuInit", &found, 99000, 0, NULL), CUDA_ERROR_INVALID_VALUE);
}

/* ---- injected failures ---- */

void test_failures(void)
{
    unsigned long long calls = sim_calls("cuMemAlloc_v2");
    CUdeviceptr p = 7, q;

    OK(sim_fail_next("cuMemAlloc_v2", 1, CUDA_ERROR_OUT_OF_MEMORY));
    OK(cuMemAlloc_v2(&q, 512));
    EQ(cuMemAlloc_v2(&p, 512), CUDA_ERROR_OUT_OF_MEMORY);
    EQ(p, 7);
    sim_set_garbage(1);
    OK(sim_fail_always("cuMemAlloc_v2", CUDA_ERROR_UNKNOWN));
    EQ(cuMemAlloc_v2(&p, 512), CUDA_ERROR_UNKNOWN);
    EQ(p, 0xa5a5a5a5a5a5a5a5);
    sim_fail_clear();
    sim_set_garbage(0);
    EQ(sim_calls("cuMemAlloc_v2"), calls + 3);
    OK(cuMemFree_v2(q));
    EQ(sim_fail_next("cuMemAlloc", 0, 2), 0);
    sim_fail_clear();
    EQ(sim_fail_next("cudaMalloc", 0, 2), -1);
    EQ(sim_calls("no such function"), 0);
}

/* ---- threads, processes ---- */

static void *churn(void *context)
{
    CUdeviceptr p[64];
    int round, i;

    OK(cuCtxSetCurrent(context));
    for (round = 0; round < 200; round++) {
        for (i = 0; i < 64; i++) {
            OK(cuMemAlloc_v2(&p[i], (size_t)(i + 1) * 5000));
        }
        for (i = 0; i < 64; i++) {
            OK(cuMemFree_v2(p[(i * 13) % 64]));
        }
    }
    return NULL;
}

void test_threads(void)
{
    unsigned long long live = sim_live_bytes(0), used = sim_device_used(0);
    pthread_t thread[4];
    CUcontext context;
    int i;

    OK(cuCtxGetCurrent(&context));
    for (i = 0; i < 4; i++) {
        OK(pthread_create(&thread[i], NULL, churn, context));
    }
    for (i = 0; i < 4; i++) {
        pthread_join(thread[i], NULL);
    }
    EQ(sim_live_bytes(0), live);
    EQ(sim_device_used(0), used);
}

int run_self(const char *argument, const char *env)
{
    char *const argv[] = {(char *)self, (char *)argument, NULL};
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        if (env != NULL) {
            putenv((char *)env);
        }
        execv(self, argv);
        _exit(127);
    }
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static int forked_child(CUdeviceptr parents, void *registered)
{
    CUcontext context;
    CUdeviceptr p;
    CUdevice d;

    EQ(cuMemAlloc_v2(&p, 512), CUDA_ERROR_NOT_INITIALIZED);
    EQ(cuDeviceGet(&d, 0), CUDA_ERROR_NOT_INITIALIZED);
    OK(cuInit(0));
    EQ(cuMemAlloc_v2(&p, 512), CUDA_ERROR_INVALID_CONTEXT);
    EQ(sim_device_used(0), 0);
    EQ(sim_contexts(), 0);
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    EQ(cuMemFree_v2(parents), CUDA_ERROR_INVALID_VALUE);
    EQ(cuMemHostUnregister(registered), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    OK(cuMemAlloc_v2(&p, 3 * MIB));
    TRUE(p != parents);
    EQ(sim_device_used(0), 304 * MIB);
    OK(cuMemFree_v2(p));
    return failures != 0;
}

static void test_fork(void)
{
    static char page[4096];
    CUdeviceptr p;
    int status;
    pid_t pid;

    OK(cuMemAlloc_v2(&p, 4 * MIB));
    OK(cuMemHostRegister_v2(page, sizeof(page), 0));
    pid = fork();
    if (pid == 0) {
        failures = 0;
        _exit(forked_child(p, page));
    }
    waitpid(pid, &status, 0);
    OK(status);
    OK(cuMemHostUnregister(page));
    OK(cuMemFree_v2(p));
}

static void after_driver_ended(void)
{
    CUdeviceptr p;

    if (cuMemAlloc_v2(&p, 512) != CUDA_ERROR_DEINITIALIZED) {
        _exit(9);
    }
}

static CUcontext context_on(CUdevice device)
{
    CUcontext context;

    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    return context;
}

/* The second allocation is to fail, by SIM_FAIL. */
static void fail_by_environment(void)
{
    CUdeviceptr p, q;

    context_on(0);
    OK(cuMemAlloc_v2(&p, 512));
    EQ(cuMemAlloc_v2(&q, 512), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemAlloc_v2(&q, 512));
    EQ(cuMemFree_v2(q), CUDA_ERROR_UNKNOWN);
    EQ(cuMemFree_v2(p), CUDA_ERROR_UNKNOWN);
}

static void two_devices(void)
{
    CUcontext first = context_on(0), second = context_on(1);
    CUdeviceptr p;
    int count;

    OK(cuDeviceGetCount(&count));
    EQ(count, 2);
    OK(cuMemAlloc_v2(&p, 8 * MIB));
    EQ(sim_live_bytes(0), 0);
    EQ(sim_live_bytes(1), 8 * MIB);
    OK(cuCtxSetCurrent(first));
    OK(cuMemFree_v2(p));
    EQ(sim_live_bytes(1), 0);
    TRUE(first != second);
}

static void pinned_limit(void)
{
    void *p, *q;

    context_on(0);
    OK(cuMemHostAlloc(&p, MIB, 0));
    EQ(cuMemHostAlloc(&q, 1, 0), CUDA_ERROR_OUT_OF_MEMORY);
    EQ((size_t)q, 0xa5a5a5a5a5a5a5a5); /* SIM_GARBAGE=1 */
    OK(cuMemFreeHost(p));
    OK(cuMemAllocHost_v2(&q, MIB));
    OK(cuMemFreeHost(q));
}

static void fork_refused(void)
{
    int status;
    pid_t pid;

    context_on(0);
    pid = fork();
    if (pid == 0) {
        EQ(cuInit(0), CUDA_ERROR_NOT_INITIALIZED);
        _exit(failures != 0);
    }
    waitpid(pid, &status, 0);
    OK(status);
}

static int as_child(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "ipc") == 0) {
        return ipc_child(argv[2]);
    }
    if (strcmp(argv[1], "runtime") == 0) {
        test_runtime();
    } else if (strcmp(argv[1], "exit") == 0) {
        atexit(after_driver_ended);
        context_on(0);
    } else if (strcmp(argv[1], "init") == 0) {
        context_on(0);
    } else if (strcmp(argv[1], "fail") == 0) {
        fail_by_environment();
    } else if (strcmp(argv[1], "devices") == 0) {
        two_devices();
    } else if (strcmp(argv[1], "pinned") == 0) {
        pinned_limit();
    } else if (strcmp(argv[1], "fork") == 0) {
        fork_refused();
    }
    return failures != 0;
}

int main(int argc, char **argv)
{
    self = "/proc/self/exe";
    if (argc > 1) {
        return as_child(argc, argv);
    }
    test_lookup();
    context_on(0);
    test_linear();
    test_host();
    test_pools();
    test_vmm();
    test_graphs();
    test_contexts();
    test_shared();
    test_failures();
    test_threads();
    test_fork();
    EQ(sim_live_bytes(0), 0);
    EQ(sim_live_count(0), 0);
    EQ(sim_pinned_bytes(), 0);

    OK(run_self("runtime", NULL));
    OK(run_self("runtime", "SIM_CUDART_GPA=v1"));
    OK(run_self("runtime", "SIM_CUDART_GPA=none"));
    OK(run_self("runtime", "SIM_CUDART_RELEASE=0"));
    OK(run_self("exit", NULL));
    EQ(run_self("exit", "SIM_ATEXIT=0"), 9);
    OK(run_self("init", "SIM_CTOR_DLSYM=1"));
    OK(run_self("init", "SIM_WSL=1"));
    OK(run_self("fail", "SIM_FAIL=cuMemAlloc_v2:2:2,cuMemFree_v2:*:999"));
    OK(run_self("devices", "SIM_DEVICES=2"));
    OK(run_self("fork", "SIM_FORK=refuse"));
    setenv("SIM_GARBAGE", "1", 1);
    OK(run_self("pinned", "SIM_PINNED_MIB=1"));
    printf("%s: %s\n", argv[0], failures == 0 ? "ok" : "FAILED");
    return failures != 0;
}
