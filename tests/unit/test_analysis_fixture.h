/*
 * What the tests of the analysis share: opening an analysis of a recording in memory, and looking at its findings.
 * Include after cmocka.h.
 */
#ifndef VRAMTRACK_TEST_ANALYSIS_FIXTURE_H
#define VRAMTRACK_TEST_ANALYSIS_FIXTURE_H

#include "analysis/analysis.h"
#include "recording/reader.h"
#include "test_reader_fixture.h"

#define MIB (1ull << 20)

/* An analysis and what it stands on. */
struct opened {
    struct vt_reading *reading;
    struct vt_analysis a;
};

static inline void open_at(struct opened *o, const struct fixture *f, const char *moment)
{
    o->reading = vt_reading_from_memory(f->image, f->bytes);
    assert_non_null(o->reading);
    assert_int_equal(vt_analysis_open(&o->a, o->reading, moment, false, NULL, NULL), 0);
}

static inline void close_it(struct opened *o)
{
    vt_analysis_close(&o->a);
    vt_reading_close(o->reading);
}

static inline const struct vt_finding *find(const struct opened *o, enum vt_family family,
                                            enum vt_confidence confidence)
{
    uint32_t i;

    for (i = 0; i < o->a.findings.count; i++)
        if (o->a.findings.list[i].family == family && o->a.findings.list[i].confidence == confidence)
            return &o->a.findings.list[i];
    return NULL;
}

static inline bool has_family(const struct opened *o, enum vt_family family)
{
    return find(o, family, VT_CERTAIN) || find(o, family, VT_LIKELY) || find(o, family, VT_POSSIBLE);
}

static inline struct vt_site *site_record(struct fixture *f, uint32_t index)
{
    return (struct vt_site *)fixture_record(f, VT_SITES, index);
}

#endif
