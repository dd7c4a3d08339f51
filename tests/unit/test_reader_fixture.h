/*
 * Builds recordings in memory, record by record, for the tests of reader, analysis and views and for the fuzzer's
 * corpus. It follows the format's description and shares no code with the writer, so that the two check each other.
 *
 * Extents begin with very few records, so that small recordings have several of them. Aborts when memory runs out.
 */
#ifndef VRAMTRACK_TEST_READER_FIXTURE_H
#define VRAMTRACK_TEST_READER_FIXTURE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vramtrack/recording.h"

struct fixture {
    uint8_t *image;
    uint64_t bytes;
};

static const uint32_t fixture_record_bytes[VT_SECTION_COUNT] = {
    [VT_STRINGS] = 1,
    [VT_MODULES] = sizeof(struct vt_module),
    [VT_FRAMES] = sizeof(struct vt_frame),
    [VT_SITES] = sizeof(struct vt_site),
    [VT_TOTALS] = sizeof(struct vt_total),
    [VT_SCOPES] = sizeof(struct vt_scope),
    [VT_TIMELINES] = sizeof(struct vt_timeline),
    [VT_LIVE] = sizeof(struct vt_slot),
    [VT_EVENTS] = sizeof(struct vt_event),
    [VT_MOMENTS] = sizeof(struct vt_moment),
    [VT_MOMENT_TOTALS] = sizeof(struct vt_moment_total),
    [VT_MOMENT_SITES] = sizeof(struct vt_moment_site),
    [VT_MOMENT_SLOTS] = sizeof(struct vt_slot),
    [VT_FAILURES] = sizeof(struct vt_failure),
    [VT_DEVICES] = sizeof(struct vt_device),
    [VT_POOLS] = sizeof(struct vt_pool),
    [VT_THREADS] = sizeof(struct vt_thread),
    [VT_STREAMS] = sizeof(struct vt_stream),
    [VT_CODES] = sizeof(struct vt_code),
    [VT_NAMES] = sizeof(struct vt_frame_name),
    [VT_ALLOCATORS] = sizeof(struct vt_allocator),
    [VT_STEPS] = sizeof(struct vt_step),
    [VT_USAGES] = sizeof(struct vt_usage),
    [VT_PROCESSES] = sizeof(struct vt_process_bytes),
    [VT_PROGRAMS] = sizeof(struct vt_program),
};

static inline struct vt_header *fixture_header(struct fixture *f)
{
    return (struct vt_header *)f->image;
}

static inline struct vt_section_entry *fixture_section(struct fixture *f, enum vt_section section)
{
    return &fixture_header(f)->section[section];
}

/* Appends zeroed bytes; returns their offset. */
static inline uint64_t fixture_extend(struct fixture *f, uint64_t bytes)
{
    uint64_t offset = f->bytes;

    if (!(f->image = realloc(f->image, offset + bytes)))
        abort();
    memset(f->image + offset, 0, bytes);
    f->bytes += bytes;
    return offset;
}

static inline uint8_t *fixture_record(struct fixture *f, enum vt_section section, uint64_t index)
{
    return f->image + vt_record_offset(fixture_section(f, section), index);
}

/* Makes sure that records up to `count` have an extent. */
static inline void fixture_room(struct fixture *f, enum vt_section section, uint64_t count)
{
    unsigned e;

    for (e = 0; e < VT_MAX_EXTENTS; e++) {
        struct vt_section_entry *s = fixture_section(f, section);
        uint64_t begins = (uint64_t)s->first * ((1ull << e) - 1), bytes, offset;

        if (count <= begins)
            return;
        if (s->extent[e])
            continue;
        bytes = ((uint64_t)s->first << e) * s->record_bytes;
        offset = fixture_extend(f, (bytes + VT_PAGE - 1) / VT_PAGE * VT_PAGE);
        fixture_section(f, section)->extent[e] = offset;
        fixture_header(f)->used_bytes = f->bytes;
    }
}

/* Adds a record; returns its index. */
static inline uint32_t fixture_add(struct fixture *f, enum vt_section section, const void *record)
{
    uint64_t index = fixture_section(f, section)->count;

    fixture_room(f, section, index + 1);
    memcpy(fixture_record(f, section, index), record, fixture_record_bytes[section]);
    fixture_section(f, section)->count++;
    return (uint32_t)index;
}

/* Adds a string of any bytes; returns its id. */
static inline uint32_t fixture_bytes(struct fixture *f, const void *bytes, uint32_t length)
{
    struct vt_section_entry *s = fixture_section(f, VT_STRINGS);
    uint64_t id = (s->count + 3) / 4 * 4, need = 4 + length + 1, end;
    unsigned e = 63u - (unsigned)__builtin_clzll(id / s->first + 1);

    end = (uint64_t)s->first * ((2ull << e) - 1); /* it must not cross an extent */
    if (id + need > end)
        id = end;
    fixture_room(f, VT_STRINGS, id + need);
    fixture_section(f, VT_STRINGS)->count = id + need;
    memcpy(fixture_record(f, VT_STRINGS, id), &length, 4);
    memcpy(fixture_record(f, VT_STRINGS, id) + 4, bytes, length);
    return (uint32_t)id;
}

static inline uint32_t fixture_string(struct fixture *f, const char *text)
{
    return fixture_bytes(f, text, (uint32_t)strlen(text));
}

/* An empty recording of a process that exited with status 0 after 2 s. */
static inline void fixture_begin(struct fixture *f)
{
    struct vt_header *h;
    uint32_t cmdline;
    unsigned s;

    memset(f, 0, sizeof *f);
    fixture_extend(f, VT_HEADER_BYTES);
    h = fixture_header(f);
    memcpy(h->magic, VT_MAGIC, sizeof h->magic);
    h->major = VT_MAJOR;
    h->minor = VT_MINOR;
    h->endian = VT_ENDIAN;
    h->header_bytes = VT_HEADER_BYTES;
    h->section_count = VT_SECTION_COUNT;
    h->limit_bytes = 1 << 20;
    h->used_bytes = VT_HEADER_BYTES;
    h->pid = 4242;
    h->rank = h->local_rank = h->world_size = -1;
    h->start_unix_ns = 1700000000000000000u;
    h->last_ns = 1900000000;
    h->end_ns = 2000000000;
    h->end = VT_END_EXIT;
    strcpy(h->host, "node7");
    strcpy(h->program, "demo");
    for (s = 0; s < VT_SECTION_COUNT; s++) {
        h->section[s].record_bytes = fixture_record_bytes[s];
        h->section[s].first = s == VT_STRINGS ? 64 : 2;
        h->section[s].limit = 1 << 20;
    }
    fixture_section(f, VT_STRINGS)->count = 4;             /* id 0 means none */
    cmdline = fixture_bytes(f, "./demo\0--size\0003", 16); /* adding it may move the image */
    fixture_header(f)->cmdline = cmdline;
}

static inline void fixture_end(struct fixture *f)
{
    free(f->image);
    memset(f, 0, sizeof *f);
}

static inline uint32_t fixture_module(struct fixture *f, const char *path, uint8_t flags)
{
    struct vt_module module = {.flags = flags, .start = 0x10000, .end = 0x20000};

    module.path = fixture_string(f, path);
    return fixture_add(f, VT_MODULES, &module);
}

/* Adds a frame; returns its id (index + 1). */
static inline uint32_t fixture_frame(struct fixture *f, uint32_t parent, uint32_t module, uint64_t where)
{
    struct vt_frame frame = {parent, module, where};

    return fixture_add(f, VT_FRAMES, &frame) + 1;
}

/* Adds the total and the scope of a (level, kind, device) with the given figures; returns the total's index. */
static inline uint32_t fixture_total(struct fixture *f, unsigned level, unsigned kind, int device, uint64_t live,
                                     uint64_t count, uint64_t peak, uint64_t allocs, uint64_t frees)
{
    struct vt_scope scope = {.level = (uint8_t)level,
                             .class_ = (uint8_t)vt_class_of((enum vt_kind)kind),
                             .device = (int16_t)device,
                             .live_bytes = live,
                             .peak_bytes = peak,
                             .epoch = 7,
                             .peak_ns = 1500000000};
    struct vt_total total = {.level = (uint8_t)level,
                             .kind = (uint8_t)kind,
                             .device = (int16_t)device,
                             .live_bytes = live,
                             .live_count = count,
                             .peak_bytes = peak,
                             .requested_bytes = live,
                             .alloc_calls = allocs,
                             .free_calls = frees,
                             .total_bytes = peak};

    total.scope = fixture_add(f, VT_SCOPES, &scope);
    return fixture_add(f, VT_TOTALS, &total);
}

/* Adds a site of a total; its figures may be changed in the record afterwards. Returns its index. */
static inline uint32_t fixture_site(struct fixture *f, uint32_t total_index, uint32_t stack, const char *api,
                                    uint64_t live, uint64_t count, uint64_t allocs, uint64_t frees)
{
    struct vt_total total;
    struct vt_site site = {.stack = stack,
                           .total = total_index,
                           .live_bytes = live,
                           .live_count = count,
                           .requested_bytes = live,
                           .peak_bytes = live,
                           .at_peak_bytes = live,
                           .at_peak_count = count,
                           .peak_epoch = 7,
                           .alloc_calls = allocs,
                           .free_calls = frees,
                           .total_bytes = live,
                           .first_ns = 100000000,
                           .last_ns = 1800000000,
                           .threads = 1};

    memcpy(&total, fixture_record(f, VT_TOTALS, total_index), sizeof total);
    site.level = total.level;
    site.kind = total.kind;
    site.device = total.device;
    site.scope = total.scope;
    site.api = fixture_string(f, api);
    return fixture_add(f, VT_SITES, &site);
}

/* What the sample is made of, for tests to refer to. */
struct sample {
    uint32_t ours, cuda, app, cublas, c10; /* modules */
    uint32_t app_stack, app_stack2, cublas_stack, c10_stack;
    uint32_t total;                         /* driver, device, GPU 0 */
    uint32_t leak, single, workspace, pool; /* sites */
    uint32_t oom;                           /* failure */
};

/*
 * A GPU of 8 GiB; sites: 4 x 16 MiB that the program leaked, 1 x 8 MiB, a workspace of cuBLAS of 32 MiB, 128 MiB of
 * PyTorch's pool; one refused request of 16 GiB with its moment; one double free.
 */
static inline void fixture_sample(struct fixture *f, struct sample *s)
{
    struct vt_device device = {.ordinal = 0,
                               .total_bytes = 8ull << 30,
                               .free_bytes = 7ull << 30,
                               .free_ns = 1000000000,
                               .context_bytes = 300u << 20,
                               .name = "Test GPU"};
    struct vt_failure oom = {.kind = VT_FAILURE_OOM,
                             .code = 2,
                             .memory_kind = VT_KIND_DEVICE,
                             .driver_visible = 1,
                             .count = 1,
                             .requested_bytes = 16ull << 30,
                             .free_bytes = 7ull << 30,
                             .total_bytes = 8ull << 30,
                             .reserved_bytes = 72u << 20,
                             .moment = 0};
    struct vt_failure twice = {.kind = VT_FAILURE_DOUBLE_FREE,
                               .code = 1,
                               .memory_kind = VT_KIND_DEVICE,
                               .driver_visible = 1,
                               .count = 3,
                               .pointer = 0x7f0000001000,
                               .moment = VT_NONE};
    struct vt_moment moment = {.name = "oom-1", .time_ns = 1200000000, .kind = VT_MOMENT_OOM, .totals = 1, .sites = 2};
    struct vt_moment_total moment_total = {.live_bytes = 40u << 20, .live_count = 3, .requested_bytes = 40u << 20};
    struct vt_moment_site moment_site = {.live_bytes = 32u << 20, .live_count = 2};
    uint32_t base;

    fixture_begin(f);
    s->ours = fixture_module(f, "/opt/vt/libvramtrack.so", VT_MODULE_SELF);
    s->cuda = fixture_module(f, "/usr/lib/libcuda.so.1", 0);
    s->app = fixture_module(f, "/nowhere/demo", 0);
    s->cublas = fixture_module(f, "/nowhere/libcublas.so.13", 0);
    s->c10 = fixture_module(f, "/nowhere/torch/lib/libc10_cuda.so", 0);
    base = fixture_frame(f, 0, s->app, 0x1100);
    s->app_stack = fixture_frame(f, fixture_frame(f, fixture_frame(f, base, s->app, 0x1234), s->cuda, 0x5000), s->ours,
                                 0x77);
    s->app_stack2 = fixture_frame(f, fixture_frame(f, base, s->app, 0x2345), s->ours, 0x77);
    s->cublas_stack = fixture_frame(f, fixture_frame(f, base, s->cublas, 0x9000), s->ours, 0x77);
    s->c10_stack = fixture_frame(f, fixture_frame(f, base, s->c10, 0xa000), s->ours, 0x77);
    s->total = fixture_total(f, VT_LEVEL_DRIVER, VT_KIND_DEVICE, 0, 232u << 20, 7, 300u << 20, 10, 3);
    s->leak = fixture_site(f, s->total, s->app_stack, "cudaMalloc", 64u << 20, 4, 6, 2);
    s->single = fixture_site(f, s->total, s->app_stack2, "cudaMalloc", 8u << 20, 1, 1, 0);
    s->workspace = fixture_site(f, s->total, s->cublas_stack, "cudaMalloc", 32u << 20, 1, 1, 0);
    s->pool = fixture_site(f, s->total, s->c10_stack, "cudaMalloc", 128u << 20, 1, 2, 1);
    fixture_add(f, VT_DEVICES, &device);
    oom.api = twice.api = fixture_string(f, "cudaMalloc");
    oom.stack = s->app_stack2;
    twice.stack = twice.freed_at = s->app_stack2;
    twice.allocated_at = s->app_stack;
    s->oom = fixture_add(f, VT_FAILURES, &oom);
    fixture_add(f, VT_FAILURES, &twice);
    moment_total.total = s->total;
    fixture_add(f, VT_MOMENT_TOTALS, &moment_total);
    moment_site.site = s->leak;
    fixture_add(f, VT_MOMENT_SITES, &moment_site);
    moment_site = (struct vt_moment_site){.site = s->single, .live_bytes = 8u << 20, .live_count = 1};
    fixture_add(f, VT_MOMENT_SITES, &moment_site);
    fixture_add(f, VT_MOMENTS, &moment);
}

/* Adds a Python frame with a code object of its own; returns its id. */
static inline uint32_t fixture_python(struct fixture *f, uint32_t parent, const char *file, const char *function,
                                      uint32_t line)
{
    struct vt_code code = {.first_line = 1};
    uint64_t index;

    code.file = fixture_string(f, file);
    code.function = fixture_string(f, function);
    index = fixture_add(f, VT_CODES, &code);
    return fixture_frame(f, parent, VT_PYTHON, index << 32 | line);
}

/* Adds to the sample: PyTorch's pool grew at a line of Python, seen through the interpreter; another thread has no Python
 * frames; and the double free knows its Python lines. */
static inline void fixture_sample_python(struct fixture *f, struct sample *s)
{
    static const char module[] = "/env/lib/python3.12/site-packages/torch/nn/modules/module.py";
    uint32_t interpreter = fixture_module(f, "/env/bin/python3.12", 0),
             libc = fixture_module(f, "/nowhere/libc.so.6", 0);
    uint32_t native = fixture_frame(f, fixture_frame(f, 0, libc, 0x20), interpreter, 0x300), python, made, gone,
             version;
    struct vt_failure *twice;

    native = fixture_frame(f, fixture_frame(f, native, interpreter, 0x310), s->c10, 0xb000);
    native = fixture_frame(f, fixture_frame(f, native, s->cuda, 0x5000), s->ours, 0x77);
    python = fixture_python(f, 0, "/home/me/train.py", "<module>", 50);
    python = fixture_python(f, python, "/home/me/train.py", "Trainer.step", 34);
    python = fixture_python(f, python, module, "Module._call_impl", 1775);
    python = fixture_python(f, python, "/home/me/net.py", "Net.forward", 12);
    python = fixture_python(f, python, "/env/lib/python3.12/site-packages/torch/functional.py", "einsum", 402);
    ((struct vt_site *)fixture_record(f, VT_SITES, s->pool))->stack = native;
    ((struct vt_site *)fixture_record(f, VT_SITES, s->pool))->python_stack = python;
    made = fixture_python(f, 0, "/home/me/net.py", "make", 3);
    gone = fixture_python(f, 0, "/home/me/net.py", "drop", 0);
    twice = (struct vt_failure *)fixture_record(f, VT_FAILURES, 1);
    twice->python_stack = python;
    twice->allocated_python = made;
    twice->freed_python = gone;
    version = fixture_string(f, "CPython 3.12.3");
    fixture_header(f)->python = version;
}

#endif
