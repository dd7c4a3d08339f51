/*
 * What the tests of verdicts on an out-of-memory share: a card that is full, the refusal, and what is said about it.
 *
 * Include after cmocka.h.
 */
#ifndef VRAMTRACK_TEST_VERDICT_FIXTURE_H
#define VRAMTRACK_TEST_VERDICT_FIXTURE_H

#include "test_scene.h"

/* The driver refuses a request that these stacks made, with the moment "oom-1". Returns the failure's record, which may move
 * when something is added to the recording. */
static inline struct vt_failure *refused_by_driver(uint32_t python, uint32_t stack, uint64_t bytes, uint64_t free_bytes)
{
    struct vt_failure *failure = failure_record(refused(&t, python, bytes, "oom-1"));

    failure->kind = VT_FAILURE_OOM;
    failure->code = 2;
    failure->driver_visible = 1;
    failure->stack = stack;
    failure->total_bytes = 16 * GIB;
    failure->free_bytes = free_bytes;
    return failure;
}

/* The framework's allocator asks, and the driver refuses. */
static inline struct vt_failure *driver_refuses(uint64_t bytes, uint64_t free_bytes)
{
    return refused_by_driver(python_line(&t, 0, "train_step", 31), t.c10_stack, bytes, free_bytes);
}

/* A text of the header; adding it may move the image. */
static inline void set_text(size_t offset, const char *text)
{
    uint32_t id = fixture_string(&t.f, text);

    memcpy((char *)fixture_header(&t.f) + offset, &id, sizeof id);
}

/* The advice that contains `words`, or NULL. */
static inline const struct vt_advice *advice(const struct vt_finding *finding, const char *words)
{
    uint32_t i;

    for (i = 0; finding && i < finding->advice_count; i++)
        if (strstr(finding->advice[i].text, words))
            return &finding->advice[i];
    return NULL;
}

/* Does a line of the evidence contain `words`? */
static inline bool says(const struct vt_finding *finding, const char *words)
{
    uint32_t i;

    for (i = 0; finding && i < finding->evidence_count; i++)
        if (strstr(finding->evidence[i], words))
            return true;
    return false;
}

static inline void check_saves(const struct vt_finding *finding, const char *words, uint64_t saves)
{
    assert_non_null(advice(finding, words));
    assert_int_equal(advice(finding, words)->saves_bytes, saves);
}

static inline void check_advice(const struct vt_finding *finding, const char *words, uint64_t saves, bool enough)
{
    check_saves(finding, words, saves);
    assert_int_equal(advice(finding, words)->enough, enough);
}

/* Looks at the refusal; the likely finding of a family, which has to be there. */
static inline const struct vt_finding *verdict(enum vt_family family)
{
    const struct vt_finding *finding;

    look("oom-1");
    finding = find(&o, family, VT_LIKELY);
    if (!finding)
        fail_msg("found: %s", o.a.findings.list[0].title);
    return finding;
}

#endif
