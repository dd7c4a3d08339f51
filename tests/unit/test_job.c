/*
 * Jobs: which rank is uneven and which is not, helpers, contexts on other ranks' GPUs, who died first. The recordings are
 * made in memory and closed as soon as they have been added.
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

static void add_device(struct fixture *f, int ordinal)
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

static void add_oom(struct fixture *f)
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

static void place_at(struct fixture *f, uint32_t total, const char *function, uint32_t line, uint64_t bytes)
{
    uint32_t python = fixture_python(f, fixture_python(f, 0, "/job/train.py", "main", 5), "/job/train.py", function,
                                     line);

    site_record(f, fixture_site(f, total, 0, "cudaMalloc", bytes, 1, 1, 0))->python_stack = python;
}

static void build(struct fixture *f, const struct spec *s, unsigned number)
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

static void open_job(struct vt_job *job, const struct spec *specs, unsigned count)
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

static const struct vt_job_finding *find_family(const struct vt_job *job, enum vt_job_family family)
{
    uint32_t i;

    for (i = 0; i < job->finding_count; i++)
        if (job->findings[i].family == family)
            return &job->findings[i];
    return NULL;
}

/* Fills ranks that are equal but for some percent, as batches make them. */
static void fill(struct spec *specs, unsigned count, uint64_t weights)
{
    for (unsigned i = 0; i < count; i++)
        specs[i] = (struct spec){.rank = (int32_t)i, .weights = weights + (i % 5) * weights / 100, .end = VT_END_EXIT};
}

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
    specs[0].rank = specs[1].rank = -1;
    open_job(&job, specs, 2);
    assert_string_equal(job.findings[0].title, "No process died; there are no ranks to compare.");
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

/* One symbolizer looks at recordings that come and go: names are those of the recording that is asked about, though the next
 * one may lie where the last one was. */
static void test_names_of_recordings_one_after_the_other(void **state)
{
    unsigned i;
    char text[16];
    struct vt_symbols *symbols = vt_symbols_open();

    (void)state;
    assert_non_null(symbols);
    for (i = 0; i < 100; i++) {
        struct vt_frame_name name = {.where = 0x1234, .flags = VT_NAME_LAST};
        struct vt_reading *reading;
        struct vt_symbol symbol;
        struct fixture f;
        uint32_t frame;

        fixture_begin(&f);
        snprintf(text, sizeof text, "name_%u", i);
        if (i & 1)
            fixture_string(&f, "what comes behind lies elsewhere");
        name.module = fixture_module(&f, "/nowhere/demo", 0);
        name.function = fixture_string(&f, text);
        fixture_add(&f, VT_NAMES, &name);
        frame = fixture_frame(&f, 0, name.module, 0x1234);
        reading = vt_reading_from_memory(f.image, f.bytes);
        assert_non_null(reading);
        symbol = vt_symbols_frame(symbols, reading, vt_reading_frame(reading, frame), NULL);
        assert_int_equal(symbol.count, 1);
        assert_string_equal(symbol.frames[0].function, text);
        vt_symbols_forget(symbols, reading);
        vt_reading_close(reading);
        fixture_end(&f);
    }
    vt_symbols_close(symbols);
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
        cmocka_unit_test(test_order_of_death),
        cmocka_unit_test(test_killed_at_once),
        cmocka_unit_test(test_the_dead_are_no_measure),
        cmocka_unit_test(test_an_incomplete_recording),
        cmocka_unit_test(test_too_few_to_be_even),
        cmocka_unit_test(test_all_on_the_first_gpu),
        cmocka_unit_test(test_helpers),
        cmocka_unit_test(test_stray_contexts),
        cmocka_unit_test(test_processes_without_ranks),
        cmocka_unit_test(test_names_of_recordings_one_after_the_other),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
