/*
 * Jobs that did not end well: what the findings say of ranks that a launcher has ended after another one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_job_fixture.h"

static const struct vt_job_finding *died_of(struct vt_job *job, const struct spec *specs, unsigned count)
{
    const struct vt_job_finding *f;

    open_job(job, specs, count);
    f = find_family(job, VT_JOB_DIED);
    assert_non_null(f);
    return f;
}

/* Both were last seen nearly at once: who failed by itself is known to the launcher alone. */
static void test_two_together(void **state)
{
    struct spec specs[2];
    const struct vt_job_finding *f;
    struct vt_job job;

    (void)state;
    fill(specs, 2, GIB);
    specs[0].end = specs[1].end = VT_END_RUNNING;
    specs[0].start_s = 0.03;
    f = died_of(&job, specs, 2);
    assert_string_equal(f->title, "Both processes died, and stopped together: last seen within 0.030 s of each other.");
    assert_string_equal(f->advice,
                        "Look at what the launcher printed: it ends the others when one dies, and says which one did.");
    assert_int_equal(f->evidence_count, 2);
    vt_job_free(&job);
}

/* One of them is known to be the first: there is nothing to look up. */
static void test_one_first(void **state)
{
    struct spec specs[2];
    const struct vt_job_finding *f;
    struct vt_job job;

    (void)state;
    fill(specs, 2, GIB);
    specs[0].end = specs[1].end = VT_END_RUNNING;
    specs[0].start_s = 5;
    f = died_of(&job, specs, 2);
    assert_string_equal(f->title, "Both processes died; rank 1 stopped first: was killed or crashed.");
    assert_null(f->advice);
    vt_job_free(&job);
}

/* A rank ran out of memory, and the other was ended for that. */
static void test_after_out_of_memory(void **state)
{
    struct spec specs[2];
    const struct vt_job_finding *f;
    struct vt_job job;
    uint64_t end, oom;
    char expected[128];

    (void)state;
    fill(specs, 2, GIB);
    specs[1].oom = true; /* a second after its start */
    specs[1].exit_code = 1;
    specs[0].end = VT_END_RUNNING;
    specs[0].start_s = 2;
    f = died_of(&job, specs, 2);
    assert_string_equal(f->title, "rank 0 died: was killed or crashed.");
    assert_int_equal(f->evidence_count, 2);
    assert_int_equal(job.ranks[0].rank, 1);
    end = job.ranks[1].end_unix_ns;
    oom = job.ranks[0].oom_unix_ns;
    assert_true(end > oom);
    snprintf(expected, sizeof expected,
             "rank 1 had run out of memory %.3f s before: a launcher ends the others when one fails",
             (double)(end - oom) / 1e9);
    assert_string_equal(f->evidence[1], expected);
    vt_job_free(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_together),
        cmocka_unit_test(test_one_first),
        cmocka_unit_test(test_after_out_of_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
