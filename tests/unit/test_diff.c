/*
 * Comparing recordings: places are the same by what their frames say, not by ids and addresses; what moved to other lines is
 * found; measures, steps, categories and jobs add up.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "analysis/diff.h"
#include "test_tensor_fixture.h"

/* Adds a recording to a side. */
static void add_side(struct vt_diff *d, unsigned side, const struct fixture *f, const char *moment, bool any_device)
{
    struct opened o;

    open_at(&o, f, vt_diff_moment(d, moment));
    assert_int_equal(vt_diff_add(d, side, &o.a, any_device, any_device), 0);
    close_it(&o);
}

static void compare(struct vt_diff *d, const struct fixture *before, const struct fixture *after, enum vt_diff_by by)
{
    assert_int_equal(vt_diff_open(d, by, false, false), 0);
    add_side(d, 0, before, NULL, false);
    add_side(d, 1, after, NULL, false);
    assert_int_equal(vt_diff_finish(d), 0);
}

/* The place with this user frame's function, which must be there once. */
static const struct vt_diff_site *site_in(const struct vt_diff *d, const char *function)
{
    const struct vt_diff_site *found = NULL;
    uint32_t i;

    for (i = 0; i < d->site_count; i++) {
        const struct vt_diff_site *s = &d->sites[i];
        const struct vt_spot *spot = vt_spots_at(d->places, s->place[s->place[0] == VT_NONE]);

        if (strcmp(vt_trace_user(&spot->trace)->function, function) != 0)
            continue;
        assert_null(found);
        found = s;
    }
    assert_non_null(found);
    return found;
}

static void check_site(const struct vt_diff *d, const char *function, uint64_t before, uint64_t after, const char *word)
{
    const struct vt_diff_site *s = site_in(d, function);

    assert_int_equal(s->bytes[0], before);
    assert_int_equal(s->bytes[1], after);
    assert_string_equal(vt_diff_word(s->bytes), word);
}

/* A program with four places; `pad` makes its ids and addresses different ones. */
static void program(struct tensors *t, bool pad, uint64_t grows, uint64_t shrinks, uint64_t appears, uint64_t vanishes)
{
    uint64_t next = BASE;

    tensors_begin(t);
    if (pad) {
        fixture_string(&t->f, "something else");
        python_line(t, 0, "elsewhere", 1);
        segment_place(t, "unused", 77);
    }
    hold(t, segment_place(t, "main", 1), BASE, 2 * GIB);
    if (appears)
        hold(t, tensor_place(t, "appears", 40), next, appears);
    next += appears;
    hold(t, tensor_place(t, "grows", 20), next, grows);
    next += grows;
    hold(t, tensor_place(t, "shrinks", 30), next, shrinks);
    next += shrinks;
    if (vanishes)
        hold(t, tensor_place(t, "vanishes", 50), next, vanishes);
}

static void test_changes(void **state)
{
    struct tensors before, after;
    struct vt_diff d;

    (void)state;
    program(&before, false, 100 * MIB, 80 * MIB, 0, 64 * MIB);
    program(&after, true, 300 * MIB, 40 * MIB, 16 * MIB, 0);
    compare(&d, &before.f, &after.f, VT_DIFF_LIVE);
    check_site(&d, "grows", 100 * MIB, 300 * MIB, "grew");
    check_site(&d, "shrinks", 80 * MIB, 40 * MIB, "shrank");
    check_site(&d, "appears", 0, 16 * MIB, "appeared");
    check_site(&d, "vanishes", 64 * MIB, 0, "vanished");
    assert_ptr_equal(&d.sites[0], site_in(&d, "grows")); /* largest change first */
    assert_ptr_equal(&d.sites[1], site_in(&d, "vanishes"));
    assert_int_equal(vt_diff_change(d.sites[1].bytes), -(int64_t)(64 * MIB));
    assert_int_equal(d.side[0].tensor_bytes, 244 * MIB);
    assert_int_equal(d.side[1].tensor_bytes, 356 * MIB);
    assert_int_equal(d.side[0].device_bytes, 2 * GIB);
    assert_int_equal(d.side[0].part[VT_DIFF_CACHED], 2 * GIB - 244 * MIB);
    assert_int_equal(d.side[1].part[VT_DIFF_CACHED], 2 * GIB - 356 * MIB);
    vt_diff_free(&d);
    tensors_end(&before);
    tensors_end(&after);
}

static void test_same_recording_is_unchanged(void **state)
{
    struct tensors t;
    struct vt_diff d;
    uint64_t was;
    uint32_t i;

    (void)state;
    program(&t, false, 100 * MIB, 80 * MIB, MIB, MIB);
    compare(&d, &t.f, &t.f, VT_DIFF_LIVE);
    for (i = 0; i < d.site_count; i++) {
        assert_string_equal(vt_diff_word(d.sites[i].bytes), "unchanged");
        assert_false(d.sites[i].moved);
        assert_int_equal(d.sites[i].place[0], d.sites[i].place[1]);
    }
    assert_int_equal(vt_diff_growth(&d, &was), 0);
    vt_diff_free(&d);
    tensors_end(&t);
}

/* Two calls in one function, both further down after an edit: the first stays the first. Another function is another place,
 * and so is one that exists on both sides with equal lines. */
static void test_moved_lines(void **state)
{
    struct tensors before, after;
    struct vt_diff d;
    uint32_t i, moved = 0;

    (void)state;
    tensors_begin(&before);
    tensors_begin(&after);
    hold(&before, tensor_place(&before, "forward", 10), BASE, 10 * MIB);
    hold(&before, tensor_place(&before, "forward", 12), BASE + GIB, 500 * MIB);
    hold(&before, tensor_place(&before, "stays", 90), BASE + 2 * GIB, 7 * MIB);
    hold(&after, tensor_place(&after, "forward", 112), BASE, 600 * MIB);
    hold(&after, tensor_place(&after, "forward", 110), BASE + GIB, 30 * MIB);
    hold(&after, tensor_place(&after, "renamed", 90), BASE + 2 * GIB, 7 * MIB);
    compare(&d, &before.f, &after.f, VT_DIFF_LIVE);
    assert_int_equal(d.site_count, 4);
    for (i = 0; i < d.site_count; i++) {
        const struct vt_diff_site *s = &d.sites[i];

        if (!s->moved)
            continue;
        moved++;
        assert_int_equal(s->bytes[1], s->bytes[0] == 10 * MIB ? 30 * MIB : 600 * MIB);
        assert_int_equal(vt_trace_user(&vt_spots_at(d.places, s->place[0])->trace)->line + 100,
                         vt_trace_user(&vt_spots_at(d.places, s->place[1])->trace)->line);
    }
    assert_int_equal(moved, 2);
    check_site(&d, "stays", 7 * MIB, 0, "vanished");
    check_site(&d, "renamed", 0, 7 * MIB, "appeared");
    vt_diff_free(&d);
    tensors_end(&before);
    tensors_end(&after);
}

static uint32_t called_from(struct tensors *t, const char *caller, uint32_t line)
{
    uint32_t outer = python_line(t, python_line(t, 0, "<module>", 99), caller, 70);

    return place(t, t->tensor, 0, python_line(t, outer, "train", line));
}

/* Another function calls the training: its lines, and what they hold, are the same. More than a twentieth more or less, or
 * another line, is another place. */
static void test_other_callers(void **state)
{
    struct tensors before, after;
    struct vt_diff d;
    uint32_t i, paired = 0;

    (void)state;
    tensors_begin(&before);
    tensors_begin(&after);
    hold(&before, called_from(&before, "plain", 10), BASE, 100 * MIB);
    hold(&before, called_from(&before, "plain", 11), BASE + GIB, 100 * MIB);
    hold(&before, called_from(&before, "plain", 12), BASE + 2 * GIB, 100 * MIB);
    hold(&after, called_from(&after, "leaky", 10), BASE, 100 * MIB);
    hold(&after, called_from(&after, "leaky", 11), BASE + GIB, 104 * MIB);
    hold(&after, called_from(&after, "leaky", 12), BASE + 2 * GIB, 110 * MIB);
    hold(&after, called_from(&after, "leaky", 13), BASE + 3 * GIB, 90 * MIB);
    compare(&d, &before.f, &after.f, VT_DIFF_LIVE);
    assert_int_equal(d.site_count, 5);
    for (i = 0; i < d.site_count; i++) {
        const struct vt_diff_site *s = &d.sites[i];

        assert_false(s->moved);
        if (!s->other_callers)
            continue;
        paired++;
        assert_int_equal(s->bytes[0], 100 * MIB);
        assert_int_equal(s->bytes[1],
                         vt_trace_user(&vt_spots_at(d.places, s->place[1])->trace)->line == 10 ? 100 * MIB : 104 * MIB);
    }
    assert_int_equal(paired, 2);
    vt_diff_free(&d);
    tensors_end(&before);
    tensors_end(&after);
}

/* A line that holds nothing any more is still there: what its neighbour took over has not moved. */
static void test_emptied_line_has_not_moved(void **state)
{
    struct tensors before, after;
    struct vt_diff d;
    uint32_t i;

    (void)state;
    tensors_begin(&before);
    tensors_begin(&after);
    hold(&before, tensor_place(&before, "forward", 10), BASE, 10 * MIB);
    book(&before, tensor_place(&before, "forward", 12), 4 * MIB, false);
    book(&after, tensor_place(&after, "forward", 10), 4 * MIB, false);
    hold(&after, tensor_place(&after, "forward", 12), BASE, 10 * MIB);
    compare(&d, &before.f, &after.f, VT_DIFF_LIVE);
    assert_int_equal(d.site_count, 2);
    for (i = 0; i < 2; i++)
        assert_false(d.sites[i].moved);
    vt_diff_free(&d);
    tensors_end(&before);
    tensors_end(&after);
}

/* Without names equal chains mean nothing: module and offset are all that there is. */
static void test_nameless_places_do_not_move(void **state)
{
    struct fixture before, after;
    struct sample s;
    struct vt_diff d;
    uint32_t i;

    (void)state;
    fixture_sample(&before, &s);
    fixture_sample(&after, &s);
    ((struct vt_frame *)fixture_record(&after, VT_FRAMES, s.app_stack2 - 2))->where = 0x9999;
    compare(&d, &before, &after, VT_DIFF_LIVE);
    for (i = 0; i < d.site_count; i++)
        assert_false(d.sites[i].moved);
    assert_int_equal(d.site_count, 5);
    assert_int_equal(vt_diff_change(d.sites[0].bytes) + vt_diff_change(d.sites[1].bytes), 0);
    assert_int_equal(d.sites[0].bytes[0] + d.sites[1].bytes[0], 8 * MIB);
    vt_diff_free(&d);
    fixture_end(&before);
    fixture_end(&after);
}

static void test_measures(void **state)
{
    struct tensors before, after;
    struct vt_diff d;
    uint32_t site;
    uint64_t was;

    (void)state;
    program(&before, false, 100 * MIB, 80 * MIB, 0, 0);
    program(&after, false, 100 * MIB, 80 * MIB, 0, 0);
    site = tensor_place(&after, "temporary", 60);
    book(&after, site, 32 * MIB, false);
    book(&after, site, 32 * MIB, false);
    site_record(&after.f, site)->at_peak_bytes = 32 * MIB;
    site_record(&after.f, site)->at_peak_count = 1;
    total_record(&after, after.tensor)->total_bytes = 244 * MIB;
    total_record(&before, before.tensor)->total_bytes = 180 * MIB;
    compare(&d, &before.f, &after.f, VT_DIFF_LIVE);
    check_site(&d, "temporary", 0, 0, "unchanged");
    vt_diff_free(&d);
    compare(&d, &before.f, &after.f, VT_DIFF_AT_PEAK);
    check_site(&d, "temporary", 0, 32 * MIB, "appeared");
    assert_int_equal(d.side[1].tensor_bytes - d.side[0].tensor_bytes, 32 * MIB);
    assert_int_equal(vt_diff_growth(&d, &was), 32 * MIB);
    assert_int_equal(was, 180 * MIB);
    vt_diff_free(&d);
    compare(&d, &before.f, &after.f, VT_DIFF_ALLOCATED);
    check_site(&d, "temporary", 0, 64 * MIB, "appeared");
    assert_int_equal(site_in(&d, "temporary")->count[1], 2);
    assert_int_equal(d.side[1].tensor_bytes, 244 * MIB);
    assert_false(d.side[1].parts_known);
    vt_diff_free(&d);
    tensors_end(&before);
    tensors_end(&after);
}

static void test_per_step(void **state)
{
    struct tensors before, after;
    struct vt_diff d;
    unsigned i;

    (void)state;
    program(&before, false, 100 * MIB, 80 * MIB, 0, 0);
    program(&after, false, 200 * MIB, 80 * MIB, 0, 0);
    for (i = 0; i < 4; i++)
        step_ends(&before);
    for (i = 0; i < 8; i++)
        step_ends(&after);
    assert_int_equal(vt_diff_open(&d, VT_DIFF_ALLOCATED, true, false), 0);
    add_side(&d, 0, &before.f, NULL, false);
    add_side(&d, 1, &after.f, NULL, false);
    assert_int_equal(vt_diff_finish(&d), 0);
    assert_int_equal(d.side[0].steps, 4);
    assert_int_equal(d.side[1].steps, 8);
    check_site(&d, "grows", 25 * MIB, 25 * MIB, "unchanged");
    check_site(&d, "shrinks", 20 * MIB, 10 * MIB, "shrank");
    vt_diff_free(&d);
    tensors_end(&before);
    tensors_end(&after);
}

static void test_moments_of_one_recording(void **state)
{
    struct tensors t;
    struct vt_diff d;

    (void)state;
    tensors_begin(&t);
    hold(&t, tensor_place(&t, "weights", 5), BASE, 50 * MIB);
    moment(&t, "early", VT_MOMENT_NAMED, VT_NONE, true);
    hold(&t, tensor_place(&t, "graphs", 6), BASE + GIB, 70 * MIB);
    assert_int_equal(vt_diff_open(&d, VT_DIFF_LIVE, false, false), 0);
    add_side(&d, 0, &t.f, "early", false);
    add_side(&d, 1, &t.f, "end", false);
    assert_int_equal(vt_diff_finish(&d), 0);
    assert_string_equal(d.side[0].moment, "early");
    check_site(&d, "weights", 50 * MIB, 50 * MIB, "unchanged");
    check_site(&d, "graphs", 0, 70 * MIB, "appeared");
    vt_diff_free(&d);
    tensors_end(&t);
}

static void rank(struct tensors *t, int32_t number, uint64_t bytes)
{
    program(t, number & 1, bytes, 10 * MIB, 0, 0);
    fixture_header(&t->f)->rank = number;
}

static void test_jobs_add_up(void **state)
{
    struct tensors t[4];
    struct vt_diff d;
    unsigned i;

    (void)state;
    for (i = 0; i < 4; i++)
        rank(&t[i], (int32_t)(i & 1), (100 + 10 * i) * MIB);
    assert_int_equal(vt_diff_open(&d, VT_DIFF_LIVE, false, false), 0);
    for (i = 0; i < 4; i++)
        add_side(&d, i / 2, &t[i].f, NULL, true);
    assert_int_equal(vt_diff_finish(&d), 0);
    check_site(&d, "grows", 210 * MIB, 250 * MIB, "grew");
    assert_int_equal(d.side[0].recordings, 2);
    assert_int_equal(d.rank_count, 2);
    assert_int_equal(d.ranks[1].rank, 1);
    assert_int_equal(d.ranks[1].bytes[0], 2 * GIB);
    assert_int_equal(d.totals[0].device, VT_SPOT_ANY);
    assert_int_equal(d.totals[0].bytes[1], 4 * GIB);
    vt_diff_free(&d);
    for (i = 0; i < 4; i++)
        tensors_end(&t[i]);
}

/* Figures of a damaged recording: sums stop at the top, changes keep their sign. */
static void test_absurd_figures(void **state)
{
    struct tensors before, after;
    struct vt_diff d;

    (void)state;
    program(&before, false, MIB, MIB, 0, 0);
    program(&after, false, MIB, MIB, 0, 0);
    site_record(&after.f, 1)->live_bytes = UINT64_MAX - 5;
    site_record(&after.f, 1)->kind = VT_KIND_PINNED;
    total_record(&after, after.driver)->live_bytes = UINT64_MAX;
    total_record(&after, after.tensor)->live_bytes = UINT64_MAX;
    compare(&d, &before.f, &after.f, VT_DIFF_LIVE);
    assert_int_equal(vt_diff_change(d.sites[0].bytes), INT64_MAX);
    assert_int_equal(d.side[1].device_bytes, UINT64_MAX);
    vt_diff_free(&d);
    tensors_end(&before);
    tensors_end(&after);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_changes),
        cmocka_unit_test(test_same_recording_is_unchanged),
        cmocka_unit_test(test_moved_lines),
        cmocka_unit_test(test_other_callers),
        cmocka_unit_test(test_emptied_line_has_not_moved),
        cmocka_unit_test(test_nameless_places_do_not_move),
        cmocka_unit_test(test_measures),
        cmocka_unit_test(test_per_step),
        cmocka_unit_test(test_moments_of_one_recording),
        cmocka_unit_test(test_jobs_add_up),
        cmocka_unit_test(test_absurd_figures),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
