/*
 * Jobs for tests: the recordings of their ranks are made in memory and closed as soon as they have been added.
 *
 * Include after cmocka.h.
 */
#ifndef VRAMTRACK_TEST_JOB_FIXTURE_H
#define VRAMTRACK_TEST_JOB_FIXTURE_H

#include "analysis/job.h"
#include "test_tensor_fixture.h"

/* A rank: `weights` everywhere, `own` at a place of its own. */
struct spec {
    int32_t rank;
    uint64_t weights, own;
    uint32_t end; /* enum vt_end */
    int32_t exit_code;
    bool oom;
    uint64_t stray; /* on GPU 0 beside the rank's own */
    double start_s; /* after the first one */
    bool lost;      /* places, for lack of room */
    bool first_gpu; /* whatever its rank */
};

static inline void add_device(struct fixture *f, int ordinal)
{
    struct vt_device device = {.ordinal = ordinal, .total_bytes = 80 * GIB, .name = "GPU"}, none = {.ordinal = -1};

    while (fixture_section(f, VT_DEVICES)->count < (uint64_t)ordinal)
        fixture_add(f, VT_DEVICES, &none);
    device.uuid[0] = (uint8_t)(ordinal + 1);
    if (fixture_section(f, VT_DEVICES)->count > (uint64_t)ordinal)
        memcpy(fixture_record(f, VT_DEVICES, (uint64_t)ordinal), &device, sizeof device);
    else
        fixture_add(f, VT_DEVICES, &device);
}

static inline void add_oom(struct fixture *f)
{
    struct vt_failure oom = {.kind = VT_FAILURE_OOM,
                             .count = 1,
                             .memory_kind = VT_KIND_DEVICE,
                             .requested_bytes = GIB,
                             .first_ns = SECOND,
                             .last_ns = SECOND,
                             .moment = VT_NONE};

    oom.api = fixture_string(f, "cudaMalloc");
    fixture_add(f, VT_FAILURES, &oom);
}

static inline void place_at(struct fixture *f, uint32_t total, const char *function, uint32_t line, uint64_t bytes)
{
    uint32_t python = fixture_python(f, fixture_python(f, 0, "/job/train.py", "main", 5), "/job/train.py", function,
                                     line);

    site_record(f, fixture_site(f, total, 0, "cudaMalloc", bytes, 1, 1, 0))->python_stack = python;
}

static inline void build(struct fixture *f, const struct spec *s, unsigned number)
{
    int device = s->rank > 0 && !s->first_gpu ? s->rank % 8 : 0;
    uint32_t total;

    fixture_begin(f);
    for (unsigned i = 0; i < number; i++) /* ids differ in each */
        fixture_string(f, "padding");
    add_device(f, device);
    total = fixture_total(f, VT_LEVEL_DRIVER, VT_KIND_DEVICE, device, s->weights + s->own, 2, s->weights + s->own, 2,
                          0);
    if (s->own)
        place_at(f, total, "keep", 20, s->own);
    place_at(f, total, "weights", 10, s->weights);
    if (s->stray) {
        add_device(f, 0);
        total = fixture_total(f, VT_LEVEL_DRIVER, VT_KIND_DEVICE, 0, s->stray, 1, s->stray, 1, 0);
        place_at(f, total, "load", 30, s->stray);
    }
    if (s->oom)
        add_oom(f);
    if (s->lost)
        fixture_section(f, VT_SITES)->lost = 5;
    fixture_header(f)->rank = s->rank;
    fixture_header(f)->world_size = -1;
    fixture_header(f)->pid = 0x7ffffff0; /* nobody's */
    fixture_header(f)->end = s->end;
    fixture_header(f)->exit_code = s->exit_code;
    fixture_header(f)->start_unix_ns += (uint64_t)(s->start_s * 1e9);
}

static inline void open_job(struct vt_job *job, const struct spec *specs, unsigned count)
{
    struct fixture f;
    struct opened o;
    unsigned i;

    assert_int_equal(vt_job_open(job, false), 0);
    for (i = 0; i < count; i++) {
        char path[16];

        build(&f, &specs[i], i);
        snprintf(path, sizeof path, "%u.vtr", i);
        open_at(&o, &f, NULL);
        assert_int_equal(vt_job_add(job, &o.a, path, false, 0), 0);
        close_it(&o);
        fixture_end(&f);
    }
    assert_int_equal(vt_job_finish(job), 0);
}

static inline const struct vt_job_finding *find_family(const struct vt_job *job, enum vt_job_family family)
{
    uint32_t i;

    for (i = 0; i < job->finding_count; i++)
        if (job->findings[i].family == family)
            return &job->findings[i];
    return NULL;
}

/* Fills ranks that are equal but for some percent, as batches make them. */
static inline void fill(struct spec *specs, unsigned count, uint64_t weights)
{
    for (unsigned i = 0; i < count; i++)
        specs[i] = (struct spec){.rank = (int32_t)i, .weights = weights + (i % 5) * weights / 100, .end = VT_END_EXIT};
}

#endif
