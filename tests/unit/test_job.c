/*
 * Jobs: who died first, helpers of ranks, contexts on other ranks' GPUs. Which rank is uneven: test_job_skew.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_job_fixture.h"

static void test_order_of_death(void **state)
{
    struct spec specs[6];
    struct vt_job job;
    const struct vt_job_finding *died;

    (void)state;
    fill(specs, 6, GIB);
    specs[4].oom = true;
    specs[4].start_s = 2;
    specs[2].oom = true; /* a second earlier than rank 4 */
    specs[2].start_s = 1;
    specs[1].exit_code = 1;
    specs[1].start_s = 10;
    specs[5].end = VT_END_RUNNING;
    specs[5].start_s = 20;
    open_job(&job, specs, 6);
    assert_int_equal(job.findings[0].family, VT_JOB_OOM);
    assert_string_equal(job.findings[0].title, "rank 2 ran out of GPU memory first; 2 did in all.");
    assert_int_equal(job.ranks[0].rank, 2);
    assert_int_equal(job.ranks[1].rank, 4);
    died = find_family(&job, VT_JOB_DIED);
    assert_int_equal(died->rank_count, 2);
    assert_true(job.ranks[2].failed && job.ranks[3].failed);
    assert_int_equal(job.ranks[2].rank, 1);
    assert_int_equal(job.ranks[4].rank, 0);
    assert_non_null(strstr(died->title, "2 processes died; rank 1 stopped first: exit status 1."));
    vt_job_free(&job);
    specs[2].start_s = 15; /* after the death of rank 1: in the order of time */
    specs[4].start_s = 16;
    open_job(&job, specs, 6);
    assert_int_equal(job.findings[0].family, VT_JOB_DIED);
    assert_int_equal(job.findings[1].family, VT_JOB_OOM);
    assert_string_equal(job.findings[1].title, "rank 2 ran out of GPU memory first; 2 did in all.");
    assert_int_equal(job.ranks[0].rank, 1);
    assert_int_equal(job.ranks[1].rank, 2);
    vt_job_free(&job);
}

/* When a killed process died is known by its last event: a tenth of a second between two of them says nothing. */
static void test_killed_at_once(void **state)
{
    struct spec specs[4];
    struct vt_job job;
    const char *title;

    (void)state;
    fill(specs, 4, GIB);
    for (unsigned i = 0; i < 4; i++) {
        specs[i].end = VT_END_RUNNING;
        specs[i].start_s = (4 - i) * 0.1;
    }
    open_job(&job, specs, 4);
    title = find_family(&job, VT_JOB_DIED)->title;
    assert_string_equal(title, "All 4 processes died, and stopped together: last seen within 0.300 s of each other.");
    vt_job_free(&job);
    specs[3].start_s = 0;
    for (unsigned i = 0; i < 3; i++)
        specs[i].start_s = 5;
    open_job(&job, specs, 4);
    title = find_family(&job, VT_JOB_DIED)->title;
    assert_string_equal(title, "All 4 processes died; rank 3 stopped first: was killed or crashed.");
    vt_job_free(&job);
}

/* Nobody has chosen a device. */
static void test_all_on_the_first_gpu(void **state)
{
    struct spec specs[4];
    struct vt_job job;
    const struct vt_job_finding *f;

    (void)state;
    fill(specs, 4, GIB);
    for (unsigned i = 0; i < 4; i++)
        specs[i].first_gpu = true;
    open_job(&job, specs, 4);
    f = find_family(&job, VT_JOB_SHARED);
    assert_non_null(f);
    assert_int_equal(f->confidence, VT_POSSIBLE);
    assert_string_equal(
        f->title, "All 4 ranks of a host are on one GPU, number 0: if there are more, no rank has chosen its own.");
    vt_job_free(&job);
    specs[2].first_gpu = false;
    open_job(&job, specs, 4);
    assert_null(find_family(&job, VT_JOB_SHARED));
    vt_job_free(&job);
}

static void test_helpers(void **state)
{
    struct spec specs[7];
    struct vt_job job;

    (void)state;
    fill(specs, 3, GIB);
    specs[3] = (struct spec){.rank = 1, .weights = 2 * MIB, .end = VT_END_EXIT};
    specs[4] = (struct spec){.rank = 1, .weights = MIB, .end = VT_END_RUNNING};
    specs[5] = (struct spec){.rank = -1, .weights = MIB, .end = VT_END_EXIT};
    specs[6] = (struct spec){.rank = 2, .weights = 500 * MIB, .end = VT_END_EXIT}; /* too large to be folded away */
    open_job(&job, specs, 7);
    assert_int_equal(job.process_count, 4);
    assert_int_equal(job.rank_count, 7);
    assert_null(find_family(&job, VT_JOB_DIED)); /* a worker that is ended by a signal is nobody's death */
    assert_int_equal(job.skew_count, 0);
    vt_job_free(&job);
    specs[4].oom = true;
    open_job(&job, specs, 7);
    assert_int_equal(job.process_count, 5);
    assert_int_equal(job.ranks[0].peak, MIB);
    vt_job_free(&job);
}

static void test_stray_contexts(void **state)
{
    struct spec specs[4];
    struct vt_job job;
    const struct vt_job_finding *f;

    (void)state;
    fill(specs, 4, GIB);
    specs[2].stray = specs[3].stray = 2 * MIB;
    open_job(&job, specs, 4);
    f = find_family(&job, VT_JOB_STRAY);
    assert_non_null(f);
    assert_int_equal(f->rank_count, 2);
    assert_int_equal(job.ranks[f->ranks[0]].rank, 2);
    assert_string_equal(f->title, "2 ranks also use a GPU that is another rank's: 4.00 MiB there.");
    assert_string_equal(f->evidence[0], "rank 2, whose GPU is 2: a context and at most 2.00 MiB on GPU 0 of rank 0");
    vt_job_free(&job);
    specs[2].stray = specs[3].stray = 800 * MIB; /* a model over two GPUs */
    open_job(&job, specs, 4);
    assert_null(find_family(&job, VT_JOB_STRAY));
    vt_job_free(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_of_death),       cmocka_unit_test(test_killed_at_once),
        cmocka_unit_test(test_all_on_the_first_gpu), cmocka_unit_test(test_helpers),
        cmocka_unit_test(test_stray_contexts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
