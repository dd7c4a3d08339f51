/*
 * Recordings of a program with a framework's tensors, for tests: segments that a caching allocator took from the driver,
 * tensors in them, moments that copy what is live then. Totals and places are kept in step with the slots.
 *
 * Include after cmocka.h.
 */
#ifndef VRAMTRACK_TEST_TENSOR_FIXTURE_H
#define VRAMTRACK_TEST_TENSOR_FIXTURE_H

#include "test_analysis_fixture.h"

#define GIB (1024 * MIB)
#define SECOND 1000000000ull
#define BASE 0x7f0000000000ull /* where device addresses begin */

struct tensors {
    struct fixture f;
    uint32_t ours, cuda, c10, torch, app;
    uint32_t c10_stack; /* the driver called by PyTorch's allocator */
    uint32_t driver, tensor;
    uint64_t now; /* time of the next slot, ns; steps by a millisecond */
};

/* A GPU of 16 GiB of which 15 GiB were free at first, and PyTorch's allocator on it. The run lasts 2 s. */
static inline void tensors_begin(struct tensors *t)
{
    struct vt_device device = {
        .ordinal = 0, .total_bytes = 16 * GIB, .free_bytes = 15 * GIB, .free_ns = 1000, .name = "Test GPU"};
    struct vt_allocator allocator = {.device = 0, .framework = VT_FRAMEWORK_TORCH, .reports = 100};
    uint32_t base;

    memset(t, 0, sizeof *t);
    fixture_begin(&t->f);
    t->ours = fixture_module(&t->f, "/opt/vt/libvramtrack.so", VT_MODULE_SELF);
    t->cuda = fixture_module(&t->f, "/usr/lib/libcuda.so.1", 0);
    t->c10 = fixture_module(&t->f, "/env/torch/lib/libc10_cuda.so", 0);
    t->torch = fixture_module(&t->f, "/env/torch/lib/libtorch_cuda.so", 0);
    t->app = fixture_module(&t->f, "/nowhere/demo", 0);
    base = fixture_frame(&t->f, fixture_frame(&t->f, 0, t->app, 0x100), t->torch, 0x200);
    t->c10_stack = fixture_frame(&t->f, fixture_frame(&t->f, base, t->c10, 0x300), t->ours, 0x77);
    t->driver = fixture_total(&t->f, VT_LEVEL_DRIVER, VT_KIND_DEVICE, 0, 0, 0, 0, 0, 0);
    t->tensor = fixture_total(&t->f, VT_LEVEL_TENSOR, VT_KIND_DEVICE, 0, 0, 0, 0, 0, 0);
    fixture_add(&t->f, VT_DEVICES, &device);
    allocator.name = fixture_string(&t->f, "libc10_cuda.so");
    fixture_add(&t->f, VT_ALLOCATORS, &allocator);
    t->now = SECOND / 10;
}

static inline void tensors_end(struct tensors *t)
{
    fixture_end(&t->f);
}

static inline struct vt_total *total_record(struct tensors *t, uint32_t index)
{
    return (struct vt_total *)fixture_record(&t->f, VT_TOTALS, index);
}

/* A place in the program's own file; `line` makes it one of its own. */
static inline uint32_t python_line(struct tensors *t, uint32_t parent, const char *function, uint32_t line)
{
    return fixture_python(&t->f, parent, "/home/me/train.py", function, line);
}

/* A place of a total's level, kind and device; stacks are frame ids. */
static inline uint32_t place(struct tensors *t, uint32_t total, uint32_t native, uint32_t python)
{
    uint32_t index = fixture_site(&t->f, total, native, total == t->tensor ? "torch.caching_allocator" : "cudaMalloc",
                                  0, 0, 0, 0);

    site_record(&t->f, index)->python_stack = python;
    site_record(&t->f, index)->first_ns = 0;
    site_record(&t->f, index)->last_ns = 0;
    return index;
}

/* A segment's place, and a tensor's, at a line of a function that the module's own code calls. */
static inline uint32_t segment_place(struct tensors *t, const char *function, uint32_t line)
{
    return place(t, t->driver, t->c10_stack, python_line(t, python_line(t, 0, "<module>", 99), function, line));
}

static inline uint32_t tensor_place(struct tensors *t, const char *function, uint32_t line)
{
    return place(t, t->tensor, 0, python_line(t, python_line(t, 0, "<module>", 99), function, line));
}

/* What an allocation of `bytes` at a place changes; `live`: it is not freed again. */
static inline void book(struct tensors *t, uint32_t index, uint64_t bytes, bool live)
{
    struct vt_site *site = site_record(&t->f, index);
    struct vt_total *total = total_record(t, site->total);
    struct vt_scope *scope = (struct vt_scope *)fixture_record(&t->f, VT_SCOPES, site->scope);

    if (!site->first_ns)
        site->first_ns = t->now;
    site->last_ns = t->now;
    site->alloc_calls++;
    total->alloc_calls++;
    site->total_bytes += bytes;
    site->free_calls += !live;
    total->free_calls += !live;
    if (live) {
        site->live_bytes += bytes;
        site->live_count++;
        site->requested_bytes += bytes;
        total->live_bytes += bytes;
        total->live_count++;
        total->requested_bytes += bytes;
        scope->live_bytes += bytes;
    }
    site->peak_bytes = site->live_bytes > site->peak_bytes ? site->live_bytes : site->peak_bytes;
    site->at_peak_bytes = site->live_bytes;
    site->at_peak_count = site->live_count;
    total->peak_bytes = total->live_bytes > total->peak_bytes ? total->live_bytes : total->peak_bytes;
    scope->peak_bytes = scope->live_bytes > scope->peak_bytes ? scope->live_bytes : scope->peak_bytes;
    t->now += SECOND / 1000;
}

/* Adds a live allocation; returns the index of its slot. */
static inline uint32_t hold(struct tensors *t, uint32_t site, uint64_t address, uint64_t bytes)
{
    struct vt_slot slot = {.address = address,
                           .bytes = bytes,
                           .requested = bytes,
                           .time_ns = t->now,
                           .site = site,
                           .kind = site_record(&t->f, site)->kind};

    book(t, site, bytes, true);
    return fixture_add(&t->f, VT_LIVE, &slot);
}

static inline struct vt_slot *slot_record(struct tensors *t, uint32_t index)
{
    return (struct vt_slot *)fixture_record(&t->f, VT_LIVE, index);
}

/* Marks a slot as made during capture number `number`. */
static inline void captured(struct tensors *t, uint32_t slot, uint16_t number)
{
    slot_record(t, slot)->flags |= VT_SLOT_CAPTURE;
    slot_record(t, slot)->stream = number;
}

/* Takes a live allocation off again. */
static inline void unlive(struct tensors *t, uint32_t index)
{
    struct vt_slot *slot = slot_record(t, index);
    struct vt_site *site = site_record(&t->f, slot->site);
    struct vt_total *total = total_record(t, site->total);
    struct vt_scope *scope = (struct vt_scope *)fixture_record(&t->f, VT_SCOPES, site->scope);

    site->live_bytes -= slot->bytes;
    site->live_count--;
    site->free_calls++;
    site->last_ns = t->now;
    total->live_bytes -= slot->bytes;
    total->live_count--;
    total->free_calls++;
    scope->live_bytes -= slot->bytes;
    slot->kind = VT_KIND_NONE;
    t->now += SECOND / 1000;
}

/* Copies what is live into a moment; returns its index. slots: as the writer does while they are few. */
static inline uint32_t moment(struct tensors *t, const char *name, enum vt_moment_kind kind, uint32_t failure,
                              bool slots)
{
    struct vt_moment m = {.time_ns = t->now, .kind = kind, .failure = failure};
    uint64_t i, count;

    snprintf(m.name, sizeof m.name, "%s", name);
    m.first_total = fixture_section(&t->f, VT_MOMENT_TOTALS)->count;
    count = fixture_section(&t->f, VT_TOTALS)->count;
    for (i = 0; i < count; i++, m.totals++) {
        const struct vt_total *total = total_record(t, (uint32_t)i);
        struct vt_moment_total copy = {(uint32_t)i, 0, total->live_bytes, total->live_count, total->requested_bytes};

        fixture_add(&t->f, VT_MOMENT_TOTALS, &copy);
    }
    m.first_site = fixture_section(&t->f, VT_MOMENT_SITES)->count;
    count = fixture_section(&t->f, VT_SITES)->count;
    for (i = 0; i < count; i++) {
        const struct vt_site *site = site_record(&t->f, (uint32_t)i);
        struct vt_moment_site copy = {(uint32_t)i, 0, site->live_bytes, site->live_count};

        if (!site->live_count)
            continue;
        fixture_add(&t->f, VT_MOMENT_SITES, &copy);
        m.sites++;
    }
    m.first_slot = fixture_section(&t->f, VT_MOMENT_SLOTS)->count;
    count = slots ? fixture_section(&t->f, VT_LIVE)->count : 0;
    for (i = 0; i < count; i++) {
        struct vt_slot copy = *slot_record(t, (uint32_t)i);

        if (copy.kind == VT_KIND_NONE)
            continue;
        fixture_add(&t->f, VT_MOMENT_SLOTS, &copy);
        m.slots++;
    }
    return fixture_add(&t->f, VT_MOMENTS, &m);
}

/* A request that PyTorch refused without asking the driver, with its moment "oom-N". Returns the failure's index. */
static inline uint32_t refused(struct tensors *t, uint32_t python, uint64_t bytes, const char *name)
{
    struct vt_failure failure = {.kind = VT_FAILURE_FRAMEWORK_OOM,
                                 .memory_kind = VT_KIND_DEVICE,
                                 .count = 1,
                                 .requested_bytes = bytes,
                                 .allocated_bytes = total_record(t, t->tensor)->live_bytes,
                                 .reserved_bytes = total_record(t, t->driver)->live_bytes,
                                 .python_stack = python,
                                 .first_ns = t->now,
                                 .last_ns = t->now};
    uint32_t index = (uint32_t)fixture_section(&t->f, VT_FAILURES)->count;

    failure.api = fixture_string(&t->f, "torch.caching_allocator");
    failure.moment = moment(t, name, VT_MOMENT_OOM, index, true);
    fixture_add(&t->f, VT_FAILURES, &failure);
    t->now += SECOND / 1000;
    return index;
}

/* The program's own code ends here: everything else happens while the interpreter shuts down. */
static inline void finalize(struct tensors *t)
{
    moment(t, "finalize", VT_MOMENT_FINALIZE, VT_NONE, true);
    t->now += SECOND / 1000;
    fixture_header(&t->f)->last_ns = t->now;
    fixture_header(&t->f)->end_ns = t->now + SECOND / 1000;
}

/* A training step ends now. */
static inline void step_ends(struct tensors *t)
{
    struct vt_step step = {.end_ns = t->now};

    fixture_add(&t->f, VT_STEPS, &step);
    fixture_header(&t->f)->steps++;
    fixture_header(&t->f)->step_ns = t->now;
    t->now += SECOND / 1000;
}

#endif
