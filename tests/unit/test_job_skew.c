/*
 * Jobs: which rank is uneven and which is not, and which recordings are no measure of that.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_job_fixture.h"

static void test_even_ranks(void **state)
{
    struct spec specs[16];
    struct vt_job job;

    (void)state;
    fill(specs, 16, 10 * GIB);
    open_job(&job, specs, 16);
    assert_int_equal(job.skew_count, 0);
    assert_int_equal(job.finding_count, 1);
    assert_int_equal(job.findings[0].family, VT_JOB_NONE);
    assert_int_equal(job.held_count, 1);
    assert_int_equal(job.held[0].ranks, 16);
    assert_int_equal(job.held[0].median, 10 * GIB + 2 * (10 * GIB / 100));
    vt_job_free(&job);
}

static void test_one_uneven_rank(void **state)
{
    struct spec specs[16];
    struct vt_job job;
    const struct vt_job_skew *s;

    (void)state;
    fill(specs, 16, 10 * GIB);
    specs[11].own = 2 * GIB;
    open_job(&job, specs, 16);
    assert_int_equal(job.skew_count, 1);
    s = &job.skews[0];
    assert_int_equal(job.ranks[s->rank].rank, 11);
    assert_int_equal(s->measure, VT_JOB_PEAK);
    assert_int_equal(s->confidence, VT_LIKELY);
    assert_int_equal(s->differences[0].bytes[0], 0);
    assert_int_equal(s->differences[0].bytes[1], 2 * GIB);
    assert_string_equal(vt_trace_user(&vt_spots_at(job.places, s->differences[0].place)->trace)->function, "keep");
    assert_int_equal(s->rest, 0);
    assert_non_null(strstr(find_family(&job, VT_JOB_SKEW)->title, "rank 11 held "));
    vt_job_free(&job);
}

/* Below either limit: 64 MiB of a small job, 10 % of a large one. */
static void test_small_differences(void **state)
{
    struct spec specs[8];
    struct vt_job job;

    (void)state;
    fill(specs, 8, 100 * MIB);
    specs[3].own = 50 * MIB;
    open_job(&job, specs, 8);
    assert_int_equal(job.skew_count, 0);
    vt_job_free(&job);
    fill(specs, 8, 40 * GIB);
    specs[3].own = 3 * GIB;
    open_job(&job, specs, 8);
    assert_int_equal(job.skew_count, 0);
    vt_job_free(&job);
}

/* An eighth of the ranks and more is a pattern of the program's. */
static void test_many_uneven_ranks_are_a_pattern(void **state)
{
    struct spec specs[16];
    struct vt_job job;
    unsigned i;

    (void)state;
    fill(specs, 16, 10 * GIB);
    for (i = 0; i < 16; i += 4)
        specs[i].own = 4 * GIB;
    open_job(&job, specs, 16);
    assert_int_equal(job.skew_count, 4);
    for (i = 0; i < 4; i++)
        assert_int_equal(job.skews[i].confidence, VT_POSSIBLE);
    assert_int_equal(find_family(&job, VT_JOB_SKEW)->rank_count, 4);
    assert_non_null(strstr(find_family(&job, VT_JOB_SKEW)->title, "4 ranks differ from the median rank at its peak"));
    vt_job_free(&job);
}

/* All differ: no odd one, but a word about it, and how far it goes. */
static void test_stages(void **state)
{
    struct spec specs[8];
    struct vt_job job;
    unsigned i;

    (void)state;
    fill(specs, 8, 10 * GIB);
    for (i = 0; i < 8; i++)
        specs[i].own = i * GIB;
    open_job(&job, specs, 8);
    assert_int_equal(job.skew_count, 1);
    assert_int_equal(job.skews[0].confidence, VT_POSSIBLE);
    assert_int_equal(job.ranks[job.skews[0].rank].rank, 7);
    assert_int_equal(job.ranks[job.skews[0].against].rank, 3);
    vt_job_free(&job);
}

/* A rank with less is uneven too, unless it died before it had as much as the others. */
static void test_less_than_the_others(void **state)
{
    struct spec specs[8];
    struct vt_job job;

    (void)state;
    fill(specs, 8, 10 * GIB);
    specs[5].weights = 4 * GIB;
    open_job(&job, specs, 8);
    assert_int_equal(job.skew_count, 1);
    assert_int_equal(job.ranks[job.skews[0].rank].rank, 5);
    assert_int_equal(job.skews[0].bytes[1], 4 * GIB);
    vt_job_free(&job);
    specs[5].end = VT_END_RUNNING;
    open_job(&job, specs, 8);
    assert_int_equal(job.skew_count, 0);
    assert_int_equal(find_family(&job, VT_JOB_DIED)->rank_count, 1);
    vt_job_free(&job);
}

/* Two of four were killed half-way: two others are no field, and the dead are no measure of them. */
static void test_the_dead_are_no_measure(void **state)
{
    struct spec specs[6];
    struct vt_job job;

    (void)state;
    fill(specs, 6, 4 * GIB);
    specs[0].weights = specs[1].weights = 500 * MIB;
    specs[0].end = specs[1].end = VT_END_RUNNING;
    open_job(&job, specs, 4);
    assert_int_equal(job.skew_count, 0);
    assert_int_equal(job.median[VT_JOB_PEAK], VT_NONE);
    vt_job_free(&job);
    specs[1].weights = 9 * GIB; /* more than three of the living, which are a field: that is news of it */
    specs[5].end = VT_END_RUNNING;
    specs[5].weights = 100 * MIB;
    open_job(&job, specs, 6);
    assert_int_equal(job.skew_count, 1);
    assert_int_equal(job.ranks[job.skews[0].rank].rank, 1);
    assert_int_equal(job.ranks[job.skews[0].against].rank, 3);
    vt_job_free(&job);
    fill(specs, 6, 4 * GIB); /* all were killed: they can be compared with each other */
    for (unsigned i = 0; i < 6; i++)
        specs[i].end = VT_END_RUNNING;
    specs[2].own = 3 * GIB;
    open_job(&job, specs, 6);
    assert_int_equal(job.skew_count, 1);
    assert_int_equal(job.ranks[job.skews[0].rank].rank, 2);
    vt_job_free(&job);
}

/* What is missing from a recording is no memory that was not there. */
static void test_an_incomplete_recording(void **state)
{
    struct spec specs[5];
    struct vt_job job;

    (void)state;
    fill(specs, 5, 4 * GIB);
    specs[3].weights = MIB;
    specs[3].lost = true;
    open_job(&job, specs, 5);
    assert_int_equal(job.incomplete, 1);
    assert_int_equal(job.skew_count, 0);
    assert_int_equal(job.helper_count, 0);
    assert_int_equal(job.process_count, 5);
    assert_int_equal(job.note_count, 1);
    assert_string_equal(job.notes[0], "3.vtr of rank 3 is incomplete (places): it is not compared with the others.");
    assert_int_equal(job.findings[0].confidence, VT_POSSIBLE);
    assert_string_equal(job.findings[0].title, "The ranks whose recordings are whole are even, and none died.");
    assert_int_equal(job.held[0].median, 4 * GIB + 4 * GIB / 100); /* of four */
    vt_job_free(&job);
    specs[4].rank = 3; /* small beside the other process of its rank: no helper, because that is not known */
    specs[4].weights = 4 * GIB;
    open_job(&job, specs, 5);
    assert_int_equal(job.helper_count, 0);
    assert_string_equal(job.notes[1], "1 rank is here more than once: several processes of a rank, or two jobs at the "
                                      "same time in this directory.");
    vt_job_free(&job);
}

/* Nothing is said to be even that was not compared. */
static void test_too_few_to_be_even(void **state)
{
    struct spec specs[2];
    struct vt_job job;

    (void)state;
    fill(specs, 2, GIB);
    open_job(&job, specs, 2);
    assert_string_equal(job.findings[0].title,
                        "No process died; there are too few ranks to tell whether they are even.");
    vt_job_free(&job);
    specs[1].weights = specs[0].weights; /* to the byte: few as they are, that is said */
    open_job(&job, specs, 2);
    assert_string_equal(job.findings[0].title, "The two ranks are equal: both held 1.00 GiB at their peak; none died.");
    vt_job_free(&job);
    specs[0].rank = specs[1].rank = -1;
    open_job(&job, specs, 2);
    assert_string_equal(job.findings[0].title, "No process died; there are no ranks to compare.");
    vt_job_free(&job);
}

static void test_processes_without_ranks(void **state)
{
    struct spec specs[3];
    struct vt_job job;

    (void)state;
    fill(specs, 3, GIB);
    specs[0].rank = specs[1].rank = specs[2].rank = -1;
    specs[1].own = 8 * GIB;
    open_job(&job, specs, 3);
    assert_int_equal(job.skew_count, 0);
    assert_int_equal(job.median[VT_JOB_PEAK], VT_NONE);
    assert_int_equal(job.process_count, 3);
    vt_job_free(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_even_ranks),
        cmocka_unit_test(test_one_uneven_rank),
        cmocka_unit_test(test_small_differences),
        cmocka_unit_test(test_many_uneven_ranks_are_a_pattern),
        cmocka_unit_test(test_stages),
        cmocka_unit_test(test_less_than_the_others),
        cmocka_unit_test(test_the_dead_are_no_measure),
        cmocka_unit_test(test_an_incomplete_recording),
        cmocka_unit_test(test_too_few_to_be_even),
        cmocka_unit_test(test_processes_without_ranks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
