/*
 * One recording of a program with a framework's tensors, and the analysis of it: a test makes it, looks at it, changes it and
 * looks again. Each look closes the one before, and the end of a test (cmocka_unit_test_teardown with end_scene) closes
 * what is open, so that a test says only what it is about.
 *
 * Include after cmocka.h.
 */
#ifndef VRAMTRACK_TEST_SCENE_H
#define VRAMTRACK_TEST_SCENE_H

#include "test_tensor_fixture.h"

#define MODULE_PY "/env/lib/python3.12/site-packages/torch/nn/modules/module.py"
#define SCENE(test) cmocka_unit_test_teardown(test, end_scene)

static struct tensors t;
static struct opened o; /* what the last look() opened */
static uint64_t next;   /* address of the next tensor */

static inline void look_away(void)
{
    if (o.reading)
        close_it(&o);
    o.reading = NULL;
}

static inline int end_scene(void **state)
{
    (void)state;
    look_away();
    tensors_end(&t);
    return 0;
}

/* A new recording; of the one before nothing stays. */
static inline void begin(void)
{
    end_scene(NULL);
    tensors_begin(&t);
    next = BASE;
}

/* The same with one segment of 8 GiB, which everything lies in. */
static inline void begin_with_segment(void)
{
    begin();
    hold(&t, segment_place(&t, "main", 1), BASE, 8 * GIB);
}

/* The analysis at a moment of the recording as it is now. */
static inline void look(const char *moment)
{
    look_away();
    open_at(&o, &t.f, moment);
}

/* A live tensor behind the last one. Returns the index of its slot. */
static inline uint32_t keep(uint32_t site, uint64_t bytes)
{
    next += bytes;
    return hold(&t, site, next - bytes, bytes);
}

/* Another live segment behind the last one, full of tensors of one place, which nothing says anything about. */
static inline void fill(uint64_t bytes)
{
    hold(&t, segment_place(&t, "main", 1), next, bytes);
    keep(tensor_place(&t, "main", 2), bytes);
}

static inline struct vt_failure *failure_record(uint32_t index)
{
    return (struct vt_failure *)fixture_record(&t.f, VT_FAILURES, index);
}

static inline struct vt_moment *moment_record(uint32_t index)
{
    return (struct vt_moment *)fixture_record(&t.f, VT_MOMENTS, index);
}

static inline struct vt_allocator *allocator_record(void)
{
    return (struct vt_allocator *)fixture_record(&t.f, VT_ALLOCATORS, 0);
}

/* A place in a library's code, called from a line of the program. */
static inline uint32_t library_place(const char *function, uint32_t line, const char *file, const char *inner)
{
    uint32_t own = python_line(&t, python_line(&t, 0, "<module>", 99), function, line);

    return place(&t, t.tensor, 0, fixture_python(&t.f, own, file, inner, 100));
}

static inline uint32_t driver_total(unsigned kind, int device)
{
    return fixture_total(&t.f, VT_LEVEL_DRIVER, kind, device, 0, 0, 0, 0, 0);
}

/* A place in the program's own native code that allocates from the driver; total: of which kind and device. */
static inline uint32_t native_place(uint32_t total, uint64_t where)
{
    return place(&t, total, fixture_frame(&t.f, fixture_frame(&t.f, 0, t.app, where), t.ours, 0x77), 0);
}

/* Is the site one of the finding's? */
static inline bool names(const struct vt_finding *finding, uint32_t site)
{
    uint32_t i;

    for (i = 0; finding && i < finding->site_count; i++)
        if (finding->sites[i] == site)
            return true;
    return false;
}

/* The first finding whose title contains `text`, or NULL. */
static inline const struct vt_finding *titled(const char *text)
{
    uint32_t i;

    for (i = 0; i < o.a.findings.count; i++)
        if (strstr(o.a.findings.list[i].title, text))
            return &o.a.findings.list[i];
    return NULL;
}

/* Nothing leaks, and nothing grows for certain or likely. */
static inline void check_no_alarm(void)
{
    assert_false(has_family(&o, VT_FAMILY_LEAK));
    assert_null(find(&o, VT_FAMILY_GROWTH, VT_LIKELY));
    assert_null(find(&o, VT_FAMILY_GROWTH, VT_CERTAIN));
}

/* What was found out about the segments on GPU 0, which there has to be. */
static inline const struct vt_pools *pools(void)
{
    const struct vt_pools *p = vt_fragmentation_of(&o.a.model.fragmentation, 0);

    assert_non_null(p);
    return p;
}

#endif
