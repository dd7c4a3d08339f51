/*
 * Uses jax_plugin.c as jaxlib uses a plugin: dlopen, dlsym("GetPjrtApi"), the table's functions. One scene per test; each
 * checks the plugin's own books and ends with its status.
 */
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "jax_scenes.h"

/* Every way to make and to end a buffer. Live at the end: 1 + 16 + 64 + 128 + 256 MiB on device 0, 32 on 1, 3 pinned, 5 of
 * somebody else's. */
static int buffers(void)
{
    int64_t dims[] = {4 * MIB};
    make_client();
    void *kept = from_host(1 * MIB), *gone = from_host(2 * MIB), *deleted = from_host(4 * MIB);
    destroy(gone);
    delete (deleted);
    delete (deleted);
    destroy(deleted);
    destroy(NULL);
    struct fake_from_host big = SIZED(struct fake_from_host, .client = client, .dims = dims, .num_dims = 1,
                                      .device = device_of(1));
    dims[0] = 32 * MIB;
    CHECK(!CALL(Client_BufferFromHostBuffer, &big));
    struct fake_uninitialized u = SIZED(struct fake_uninitialized, .dims = dims, .num_dims = 1);
    dims[0] = 16 * MIB;
    CHECK(!CALL(Client_CreateUninitializedBuffer, &u));
    struct fake_copy pinned = SIZED(struct fake_copy, .buffer = kept, .where = memory_of(0, 1));
    CHECK(!CALL(Buffer_CopyToMemory, &pinned));
    struct fake_copy pageable = SIZED(struct fake_copy, .buffer = kept, .where = memory_of(0, 2));
    CHECK(!CALL(Buffer_CopyToMemory, &pageable));
    struct fake_uninitialized more = SIZED(struct fake_uninitialized, .dims = dims, .num_dims = 1,
                                           .memory = memory_of(1, 1));
    dims[0] = 2 * MIB;
    CHECK(!CALL(Client_CreateUninitializedBuffer, &more));
    struct fake_copy other = SIZED(struct fake_copy, .buffer = kept, .where = device_of(1));
    CHECK(!CALL(Buffer_CopyToDevice, &other));
    destroy(other.out);
    struct fake_retrieve r = SIZED(struct fake_retrieve, .buffer_index = 64);
    CHECK(!CALL(AsyncHostToDeviceTransferManager_RetrieveBuffer, &r));
    struct fake_view v = SIZED(struct fake_view, .dims = dims, .num_dims = 1, .memory = memory_of(0, 0));
    dims[0] = 5 * MIB;
    CHECK(!CALL(Client_CreateViewOfDeviceBuffer, &v));
    void *view = v.buffer;
    CHECK(!CALL(Client_CreateViewOfDeviceBuffer, &v));
    destroy(v.buffer);
    struct fake_bitcast b = SIZED(struct fake_bitcast, .buffer = from_host(128 * MIB));
    CHECK(!CALL(Buffer_Bitcast, &b));
    destroy(b.buffer);
    struct fake_donate d = SIZED(struct fake_donate, .buffer = from_host(256 * MIB));
    CHECK(!CALL(Buffer_DonateWithControlDependency, &d));
    destroy(d.buffer);
    CHECK(view && live_bytes(0) == (1 + 16 + 64 + 128 + 256) * MIB && live_bytes(1) == 32 * MIB);
    return 0;
}

/* A training loop: parameters (argument 0 and 2) are taken over, the data stays. */
static int train(int kept)
{
    static const struct fake_program step = {"jit_step", 3, {8 * MIB, 4 * MIB, 4}, 1 << 0 | 1 << 2, 0, 1200 * MIB};
    static const int64_t nothing[] = {0, 2};
    struct fake_options options = SIZED(struct fake_options, .kept = nothing);
    void *outputs[8], *executable, *data;
    make_client();
    executable = load(&step);
    void *params = from_host(8 * MIB), *moments = from_host(4 * MIB);
    data = from_host(1 * MIB);
    for (int i = 0; i < 100; i++) {
        void *arguments[] = {params, data, moments};
        options.num_kept = i == kept ? 2 : 0; /* once they are kept */
        CHECK(!run(executable, 1, 3, arguments, outputs, &options));
        destroy(outputs[2]);
        destroy(params);
        destroy(moments);
        params = outputs[0];
        moments = outputs[1];
    }
    CHECK(live_bytes(0) == 13 * MIB);
    CHECK(asked(VT_PJRT_Executable_NumOutputs) <= 1 && asked(-1) == 0);
    printf("%d\n", asked(VT_PJRT_Buffer_IsDeleted));
    forget(executable);
    return 0;
}

static int donation(void)
{
    return train(-1);
}

static int kept(void)
{
    return train(50);
}

/* The first runs may not take their argument over, the later ones do. */
static int late_donation(void)
{
    static const struct fake_program eat = {"jit_eat", 0, {0}, 1 << 0};
    static const int64_t first[] = {0};
    struct fake_options options = SIZED(struct fake_options, .kept = first);
    void *executable, *outputs[8];
    make_client();
    executable = load(&eat);
    for (int i = 0; i < 20; i++) {
        void *arguments[] = {from_host(1 * MIB)};
        options.num_kept = i < 10;
        CHECK(!run(executable, 1, 1, arguments, outputs, &options));
        destroy(arguments[0]);
    }
    return 0;
}

/* A buffer made behind our back. */
static int unseen(void)
{
    make_client();
    destroy(((void *(*)(uint64_t))dlsym(library, "fake_buffer"))(3 * MIB));
    return 0;
}

/* Outputs on two devices, and in page-locked memory; three programs, two of one name. */
static int programs(void)
{
    static const struct fake_program wide = {"jit_wide", 2, {8 * MIB, 2 * MIB}, 0, 1 << 1, 5 * MIB};
    static const struct fake_program small = {"jit_f", 1, {1 * MIB}, 0, 0, 1 * MIB},
                                     large = {"jit_f", 1, {3 * MIB}, 0, 0, 7 * MIB};
    void *outputs[16], *arguments[] = {NULL};
    make_client();
    void *executable = load(&wide), *f = load(&small), *g = load(&large);
    CHECK(!run(executable, 2, 0, arguments, outputs, NULL));
    CHECK(!run(f, 1, 0, arguments, outputs, NULL));
    CHECK(!run(g, 1, 0, arguments, outputs, NULL));
    forget(f);
    return 0;
}

/* The arena refuses: at once, later, twice the same, something that is not memory, and something on a device that is named. */
static int refusals(void)
{
    static const struct fake_program huge = {"jit_huge", 1, {5000 * MIB}, 1 << 0, 0, 0};
    static const struct fake_program kernel = {
        .name = "jit_kernel", .error = "Shared memory size limit exceeded: requested 327680, available: 232448"};
    void *outputs[8] = {0}, *arguments[1], *executable;
    char text[200];
    make_client();
    arguments[0] = from_host(7 * MIB);
    executable = load(&huge);
    CHECK(status(run(executable, 1, 1, arguments, outputs, NULL), text) == 8);
    CHECK(!strcmp(text, "Out of memory while trying to allocate 5242880000 bytes."));
    destroy(arguments[0]);
    CHECK(status(run(load(&kernel), 1, 0, arguments, outputs, NULL), text) == 8);
    /* work that fails later: every buffer's event has an error of its own */
    for (int i = 0; i < 3; i++)
        CHECK(status(make_error(8, "Failed to allocate request for 2.99GiB (3206250496B) on device ordinal 0"), text) ==
              8);
    CHECK(status(make_error(13, "Failed to allocate a thought"), text) == 13);
    int64_t dims[] = {6000 * MIB};
    struct fake_from_host a = SIZED(struct fake_from_host, .client = client, .dims = dims, .num_dims = 1,
                                    .memory = memory_of(1, 0));
    CHECK(status(CALL(Client_BufferFromHostBuffer, &a), text) == 8);
    return 0;
}

/* Work that fails later, where there is one GPU. */
static int late(void)
{
    char text[200];
    make_client();
    for (int i = 0; i < 2; i++)
        CHECK(status(make_error(8, "Out of memory while trying to allocate 64.00MiB."), text) == 8);
    return 0;
}

/* 900 MiB are free. 500 succeed at the second try, 450 do not. */
static int growing(void)
{
    static const struct fake_program first = {"jit_first", 1, {500 * MIB}}, second = {"jit_second", 1, {450 * MIB}};
    void *outputs[8], *arguments[1];
    char text[200];
    make_client();
    CHECK(!run(load(&first), 1, 0, arguments, outputs, NULL));
    CHECK(status(run(load(&second), 1, 0, arguments, outputs, NULL), text) == 8);
    return 0;
}

static void *work(void *argument)
{
    static const struct fake_program step = {"jit_step", 2, {64, 128}, 1 << 0, 0, 0};
    unsigned *seed = argument;
    void *executable = load(&step), *outputs[8], *kept = NULL;
    for (int i = 0; i < 2000; i++) {
        void *arguments[] = {from_host(32), from_host(16)};
        CHECK(!run(executable, 1, 2, arguments, outputs, NULL));
        destroy(arguments[0]);
        destroy(arguments[1]);
        destroy(outputs[0]);
        if (kept)
            destroy(kept);
        kept = outputs[1];
        if (rand_r(seed) % 100 == 0) {
            forget(executable);
            executable = load(&step);
        }
    }
    return NULL;
}

static void *get_api(void *argument)
{
    (void)argument;
    get_api_fn *get = (get_api_fn *)dlsym(library, "GetPjrtApi");
    return (void *)get();
}

/* Eight threads ask for the table, then make and end buffers; each keeps one of 128 bytes. */
static int threads(void)
{
    pthread_t thread[8];
    unsigned seed[8];
    void *table;
    for (int i = 0; i < 8; i++)
        CHECK(!pthread_create(&thread[i], NULL, get_api, NULL));
    for (int i = 0; i < 8; i++) {
        CHECK(!pthread_join(thread[i], &table));
        CHECK(table == api);
    }
    make_client();
    for (int i = 0; i < 8; i++) {
        seed[i] = (unsigned)i;
        CHECK(!pthread_create(&thread[i], NULL, work, &seed[i]));
    }
    for (int i = 0; i < 8; i++)
        CHECK(!pthread_join(thread[i], NULL));
    CHECK(live_bytes(0) == 8 * 128);
    return 0;
}

/* A child goes on with the same client, which a real one could not: its recording is its own. */
static int forks(void)
{
    static const struct fake_program step = {"jit_step", 1, {2 * MIB}, 1 << 0, 0, 0};
    int result;
    void *outputs[8];
    make_client();
    void *executable = load(&step), *arguments[] = {from_host(1 * MIB)};
    CHECK(!run(executable, 1, 1, arguments, outputs, NULL));
    pid_t child = fork();
    if (!child) {
        arguments[0] = outputs[0];
        CHECK(!run(executable, 1, 1, arguments, outputs, NULL));
        from_host(8 * MIB);
        exit(7);
    }
    CHECK(waitpid(child, &result, 0) == child && WIFEXITED(result) && WEXITSTATUS(result) == 7);
    return 0;
}

/* The client ends with a buffer and a program still there, and another one begins, whose programs lie where the first one's
 * lay. */
static int clients(void)
{
    static const struct fake_program three = {"jit_three", 3, {1 * MIB, 1 * MIB, 1 * MIB}},
                                     one = {"jit_one", 1, {2 * MIB}};
    void *outputs[8], *arguments[1], *executable;
    make_client();
    from_host(1 * MIB);
    executable = load(&three);
    CHECK(!run(executable, 1, 0, arguments, outputs, NULL));
    struct fake_buffer_args a = SIZED(struct fake_buffer_args, .buffer = client);
    CHECK(!CALL(Client_Destroy, &a));
    make_client();
    relabel(executable, &one);
    memset(outputs, 0x5a, sizeof outputs); /* no buffers: whoever takes them for some crashes */
    CHECK(!run(executable, 1, 0, arguments, outputs, NULL));
    /* the same without the end of a client in between: another number of arguments tells */
    relabel(executable, &three);
    arguments[0] = from_host(4 * MIB);
    CHECK(!run(executable, 1, 1, arguments, outputs, NULL));
    return 0;
}

/* A table that we do not know, or a platform that is not ours: nothing but the program's own work. */
static int plain(void)
{
    make_client();
    destroy(from_host(1 * MIB));
    from_host(2 * MIB);
    printf("%s\n", api == ((get_api_fn *)dlsym(library, "fake_table"))() ? "real" : "copy");
    return 0;
}

/* The bytes of the table that is handed out, as hexadecimal words: for comparing it with the real one. */
static int table(void)
{
    const uintptr_t *real = ((get_api_fn *)dlsym(library, "fake_table"))();
    for (size_t i = 0; i < real[0] / sizeof *real; i++)
        if (api[i] != real[i])
            printf("%zu ", i);
    printf("of %zu\n", real[0] / sizeof *real);
    return 0;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Nanoseconds of a run with one and with eight outputs, their ends included. */
static int speed(void)
{
    static const struct fake_program one = {"jit_one", 1, {64}}, eight = {"jit_eight", 8, {1, 2, 3, 4, 5, 6, 7, 8}};
    const struct fake_program *both[] = {&one, &eight};
    void *outputs[8], *arguments[1];
    make_client();
    arguments[0] = from_host(8);
    for (int k = 0; k < 2; k++) {
        double best = 1e18;
        void *executable = load(both[k]);
        for (int round = 0; round < 50; round++) {
            double start = now();
            for (int i = 0; i < 1000; i++) {
                CHECK(!run(executable, 1, 1, arguments, outputs, NULL));
                for (size_t o = 0; o < both[k]->outputs; o++)
                    destroy(outputs[o]);
            }
            double each = (now() - start) / 1000;
            best = each < best ? each : best;
        }
        printf("%zu outputs: %.0f ns\n", both[k]->outputs, best);
    }
    return 0;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(void);
    } scenes[] = {
        {"buffers", buffers}, {"donation", donation}, {"programs", programs}, {"refusals", refusals},
        {"late", late},       {"growing", growing},   {"kept", kept},         {"late_donation", late_donation},
        {"unseen", unseen},   {"threads", threads},   {"forks", forks},       {"clients", clients},
        {"plain", plain},     {"table", table},       {"speed", speed}};
    CHECK(argc == 3);
    find(argv[2]);
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
        if (!strcmp(argv[1], scenes[i].name))
            return scenes[i].run();
    return 98;
}
