/*
 * What the ranks' own reports say of leaks stays in the report of a job, whatever moment that is shown at: growth is judged at
 * the end.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "analysis/job.h"
#include "test_growth_actors.h"

static void record(void)
{
    struct actor actors[2];

    sim_begin(&s, 1001);
    set_up(&actors[0], temporary, 60);
    set_up(&actors[1], leaking, 60);
    actors[1].period = 1;
    actors[1].bytes = MIB;
    run(actors, 2, 60, STEPS, true);
    fixture_header(&s.t.f)->rank = 0;
    fixture_header(&s.t.f)->end = VT_END_EXIT;
}

static void test_growth_at_any_moment(void **state)
{
    static const char *const asked[] = {NULL, "end", "peak"};
    struct vt_job job;
    struct opened o;
    unsigned i;

    (void)state;
    for (i = 0; i < 3; i++) {
        record();
        assert_int_equal(vt_job_open(&job, false), 0);
        job.at_moment = asked[i] != NULL;
        open_at(&o, &s.t.f, asked[i]);
        assert_int_equal(vt_job_add(&job, &o.a, "rank.vtr", false, 0), 0);
        close_it(&o);
        tensors_end(&s.t);
        assert_int_equal(vt_job_finish(&job), 0);
        assert_non_null(job.ranks[0].finding);
        assert_non_null(strstr(job.ranks[0].finding, "growth (likely): "));
        vt_job_free(&job);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_growth_at_any_moment)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
