/*
 * What the table of a job shows of each rank: its parts at its own peak if it ended by itself, where memory ran out, at its
 * end if it was killed, or at the moment that was asked for; and that they add up.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "analysis/job.h"
#include "test_tensor_fixture.h"

enum ending { FINALIZED, FAILED, KILLED, OOM };

#define TORCH "/env/lib/python3.12/site-packages/torch/"

/* 1 GiB reserved, 650 MiB of it in tensors, and 128 MiB beside. */
struct rank {
    struct tensors t;
    uint32_t parameters, gradients, optimizer, other; /* slots */
};

static uint32_t parameter_place(struct tensors *t)
{
    uint32_t outer = python_line(t, 0, "make_model", 10);

    return place(t, t->tensor, 0, fixture_python(&t->f, outer, TORCH "nn/modules/module.py", "Module._apply", 900));
}

static uint32_t place_in(struct tensors *t, unsigned phase, const char *function)
{
    uint32_t site = tensor_place(t, function, 20 + phase);

    site_record(&t->f, site)->phase = (uint8_t)phase;
    return site;
}

static void hold_all(struct rank *r)
{
    struct tensors *t = &r->t;

    tensors_begin(t);
    hold(t, segment_place(t, "train", 30), BASE, GIB);
    hold(t, place(t, t->driver, fixture_frame(&t->f, 0, t->app, 0x500), 0), BASE + 2 * GIB, 128 * MIB);
    r->parameters = hold(t, parameter_place(t), BASE, 300 * MIB);
    r->gradients = hold(t, place_in(t, VT_PHASE_BACKWARD, "backward"), BASE + 300 * MIB, 100 * MIB);
    r->optimizer = hold(t, place_in(t, VT_PHASE_OPTIMIZER, "step"), BASE + 400 * MIB, 200 * MIB);
    r->other = hold(t, place_in(t, VT_PHASE_ZERO_GRAD, "keep"), BASE + 600 * MIB, 50 * MIB);
}

/* After its peak a rank frees its gradients; at its end everything but what it keeps. */
static void build(struct rank *r, int32_t number, enum ending ending)
{
    struct tensors *t = &r->t;

    hold_all(r);
    unlive(t, r->gradients);
    if (ending == OOM)
        refused(t, python_line(t, 0, "train", 50), 20 * GIB, "oom-1");
    if (ending != KILLED) {
        unlive(t, r->parameters);
        unlive(t, r->optimizer);
        finalize(t);
    }
    fixture_header(&t->f)->rank = number;
    fixture_header(&t->f)->pid = 0x7ffffff0; /* nobody's */
    fixture_header(&t->f)->end = ending == KILLED ? VT_END_RUNNING : VT_END_EXIT;
    fixture_header(&t->f)->exit_code = ending == FAILED;
}

static void add_rank(struct vt_job *job, const struct fixture *f, const char *asked)
{
    struct opened o;
    char name[33];
    const char *moment = asked;

    o.reading = vt_reading_from_memory(f->image, f->bytes);
    assert_non_null(o.reading);
    if (!moment)
        moment = vt_job_moment(o.reading, name);
    assert_int_equal(vt_analysis_open(&o.a, o.reading, moment, false, NULL, NULL), 0);
    assert_int_equal(vt_job_add(job, &o.a, "rank.vtr", false, 0), 0);
    close_it(&o);
}

static void open_one(struct vt_job *job, enum ending ending, const char *asked)
{
    struct rank r;

    assert_int_equal(vt_job_open(job, false), 0);
    job->at_moment = asked != NULL;
    build(&r, 0, ending);
    add_rank(job, &r.t.f, asked);
    tensors_end(&r.t);
    assert_int_equal(vt_job_finish(job), 0);
}

static void assert_parts(const struct vt_job_parts *p, enum vt_job_when when, const uint64_t mib[VT_PART_COUNT + 2])
{
    uint64_t sum = p->cached + p->rest;
    unsigned i;

    assert_int_equal(p->when, when);
    assert_true(p->known);
    for (i = 0; i < VT_PART_COUNT; i++) {
        assert_int_equal(p->part[i] / MIB, mib[i]);
        sum += p->part[i];
    }
    assert_int_equal(p->cached / MIB, mib[VT_PART_COUNT]);
    assert_int_equal(p->rest / MIB, mib[VT_PART_COUNT + 1]);
    assert_int_equal(sum, p->bytes);
}

/* By VT_PART_*, cached, not tensors. */
static const uint64_t AT_PEAK[] = {300, 100, 200, 0, 0, 50, 1024 - 650, 128};
static const uint64_t BEFORE_THE_END[] = {300, 0, 200, 0, 0, 50, 1024 - 550, 128};
static const uint64_t FINALLY[] = {0, 0, 0, 0, 0, 50, 1024 - 50, 128};

static void test_who_ends_by_itself(void **state)
{
    const enum ending endings[] = {FINALIZED, FAILED};
    struct vt_job job;
    unsigned i;

    (void)state;
    for (i = 0; i < 2; i++) {
        open_one(&job, endings[i], NULL);
        assert_string_equal(job.ranks[0].moment, "finalize");
        assert_int_equal(job.ranks[0].failed, endings[i] == FAILED);
        assert_parts(&job.ranks[0].parts, VT_JOB_AT_PEAK, AT_PEAK);
        assert_int_equal(job.ranks[0].parts.bytes, job.ranks[0].peak);
        /* What is at the moment stays that. */
        assert_int_equal(job.ranks[0].part[VT_PART_PARAMETERS], 0);
        assert_int_equal(job.ranks[0].part[VT_PART_OTHER], 50 * MIB);
        assert_int_equal(job.ranks[0].cached, GIB - 50 * MIB);
        vt_job_free(&job);
    }
}

static void test_who_is_killed(void **state)
{
    struct vt_job job;

    (void)state;
    open_one(&job, KILLED, NULL);
    assert_parts(&job.ranks[0].parts, VT_JOB_AT_END, BEFORE_THE_END);
    assert_int_equal(job.ranks[0].parts.bytes, job.ranks[0].live);
    vt_job_free(&job);
}

static void test_who_runs_out_of_memory(void **state)
{
    struct vt_job job;

    (void)state;
    open_one(&job, OOM, NULL);
    assert_true(job.ranks[0].oom);
    assert_parts(&job.ranks[0].parts, VT_JOB_AT_OOM, BEFORE_THE_END);
    vt_job_free(&job);
}

/* What was held when memory ran out is of that moment, and its time is the one that the rank's own report has, whatever moment
 * the job is shown at. */
static void test_out_of_memory_whatever_is_shown(void **state)
{
    const char *const asked[] = {NULL, "peak", "end", "finalize"};
    struct vt_failure *failure;
    struct vt_job job;
    struct rank r;
    unsigned i;

    (void)state;
    for (i = 0; i < 4; i++) {
        hold_all(&r);
        r.t.now = SECOND;
        refused(&r.t, python_line(&r.t, 0, "train", 50), 20 * GIB, "oom-1");
        failure = (struct vt_failure *)fixture_record(&r.t.f, VT_FAILURES, 0);
        failure->first_ns -= SECOND / 20; /* the allocator has tried to help itself before it gave up */
        hold(&r.t, place(&r.t, r.t.driver, fixture_frame(&r.t.f, 0, r.t.app, 0x600), 0), BASE + 4 * GIB, 512 * MIB);
        finalize(&r.t);
        fixture_header(&r.t.f)->rank = 0;
        fixture_header(&r.t.f)->end = VT_END_EXIT;
        assert_int_equal(vt_job_open(&job, false), 0);
        job.at_moment = asked[i] != NULL;
        add_rank(&job, &r.t.f, asked[i]);
        tensors_end(&r.t);
        assert_int_equal(vt_job_finish(&job), 0);
        assert_true(job.ranks[0].oom_live_known);
        assert_int_equal(job.ranks[0].oom_live, GIB + 128 * MIB);
        assert_int_equal(job.ranks[0].live, GIB + (i ? 640 : 128) * MIB);
        assert_int_equal(job.findings[0].family, VT_JOB_OOM);
        assert_non_null(
            strstr(job.findings[0].evidence[0], ", 1.000 s after the job's first CUDA call, held 1.12 GiB then: "));
        vt_job_free(&job);
    }
}

/* There was no room for the moment: nothing says what was held there. */
static void test_out_of_memory_without_its_moment(void **state)
{
    struct vt_failure oom = {.kind = VT_FAILURE_OOM, .count = 1, .memory_kind = VT_KIND_DEVICE, .moment = VT_NONE};
    struct vt_job job;
    struct rank r;

    (void)state;
    assert_int_equal(vt_job_open(&job, false), 0);
    build(&r, 0, FINALIZED);
    fixture_add(&r.t.f, VT_FAILURES, &oom);
    add_rank(&job, &r.t.f, NULL);
    tensors_end(&r.t);
    assert_int_equal(vt_job_finish(&job), 0);
    assert_true(job.ranks[0].oom);
    assert_false(job.ranks[0].oom_live_known);
    assert_null(strstr(job.findings[0].evidence[0], "held"));
    assert_parts(&job.ranks[0].parts, VT_JOB_AT_PEAK, AT_PEAK);
    vt_job_free(&job);
}

static void test_the_moment_asked_for(void **state)
{
    struct vt_job job;

    (void)state;
    open_one(&job, FINALIZED, "finalize");
    assert_parts(&job.ranks[0].parts, VT_JOB_AT_MOMENT, FINALLY);
    assert_int_equal(job.ranks[0].parts.bytes, job.ranks[0].live);
    vt_job_free(&job);
    open_one(&job, FINALIZED, "peak");
    assert_parts(&job.ranks[0].parts, VT_JOB_AT_MOMENT, AT_PEAK);
    vt_job_free(&job);
    open_one(&job, OOM, "peak");
    assert_parts(&job.ranks[0].parts, VT_JOB_AT_MOMENT, AT_PEAK);
    vt_job_free(&job);
}

/* Without tensors all of it is one. */
static void test_no_tensors(void **state)
{
    struct vt_job job;
    struct tensors t;

    (void)state;
    assert_int_equal(vt_job_open(&job, false), 0);
    tensors_begin(&t);
    total_record(&t, t.tensor)->kind = VT_KIND_NONE;
    total_record(&t, t.tensor)->level = VT_LEVEL_DRIVER;
    hold(&t, place(&t, t.driver, fixture_frame(&t.f, 0, t.app, 0x500), 0), BASE, 128 * MIB);
    finalize(&t);
    fixture_header(&t.f)->end = VT_END_EXIT;
    add_rank(&job, &t.f, NULL);
    tensors_end(&t);
    assert_false(job.ranks[0].parts.known);
    assert_int_equal(job.ranks[0].parts.rest, 128 * MIB);
    assert_int_equal(job.ranks[0].parts.bytes, 128 * MIB);
    vt_job_free(&job);
}

/* The parts are for the table: which rank is odd is said by what each held at its peak and at its end, as before. */
static void test_skew_is_as_before(void **state)
{
    struct vt_job job;
    struct rank r;
    int32_t i;

    (void)state;
    assert_int_equal(vt_job_open(&job, false), 0);
    for (i = 0; i < 4; i++) {
        hold_all(&r);
        if (i == 2)
            hold(&r.t, place_in(&r.t, VT_PHASE_ZERO_GRAD, "remember"), BASE + 700 * MIB, 300 * MIB);
        unlive(&r.t, r.gradients);
        finalize(&r.t);
        fixture_header(&r.t.f)->rank = i;
        fixture_header(&r.t.f)->end = VT_END_EXIT;
        add_rank(&job, &r.t.f, NULL);
        tensors_end(&r.t);
    }
    assert_int_equal(vt_job_finish(&job), 0);
    /* The segment is the same: peaks are even, and what is live differs. */
    assert_int_equal(job.skew_count, 1);
    assert_int_equal(job.skews[0].rank, 2);
    assert_int_equal(job.skews[0].measure, VT_JOB_LIVE);
    assert_int_equal(job.skews[0].bytes[1] - job.skews[0].bytes[0], 300 * MIB);
    assert_int_equal(job.ranks[2].parts.part[VT_PART_OTHER], 350 * MIB);
    assert_int_equal(job.ranks[2].parts.cached, (1024 - 950) * MIB);
    vt_job_free(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_ends_by_itself),
        cmocka_unit_test(test_who_is_killed),
        cmocka_unit_test(test_who_runs_out_of_memory),
        cmocka_unit_test(test_out_of_memory_without_its_moment),
        cmocka_unit_test(test_out_of_memory_whatever_is_shown),
        cmocka_unit_test(test_the_moment_asked_for),
        cmocka_unit_test(test_no_tensors),
        cmocka_unit_test(test_skew_is_as_before),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
