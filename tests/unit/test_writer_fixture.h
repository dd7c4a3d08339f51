/*
 * What the tests of the writer share: a writer with a file in a folder of its own, and live allocations in it.
 *
 * Include after cmocka.h.
 */
#ifndef VRAMTRACK_TEST_WRITER_FIXTURE_H
#define VRAMTRACK_TEST_WRITER_FIXTURE_H

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "recording/reader.h"
#include "recording/writer.h"

#define MIB (1ull << 20)

static char directory[] = "/tmp/vt-writer-XXXXXX";

static inline struct vt_writer_options options(uint64_t limit)
{
    return (struct vt_writer_options){.directory = directory,
                                      .program = "unit",
                                      .host = "here",
                                      .pid = 77,
                                      .rank = -1,
                                      .start_unix_ns = 5000000,
                                      .limit_bytes = limit,
                                      .events = 4096};
}

static inline struct vt_writer open_writer(uint64_t limit)
{
    struct vt_writer w;
    struct vt_writer_options o = options(limit);
    errno = 1234;
    assert_true(vt_writer_open(&w, &o));
    assert_int_equal(errno, 1234);
    assert_int_equal(w.state, VT_WRITER_FILE);
    return w;
}

static inline void remove_writer(struct vt_writer *w)
{
    assert_int_equal(unlink(w->path), 0);
    vt_writer_abandon(w);
    assert_int_equal(w->state, VT_WRITER_CLOSED);
}

static inline struct vt_section_entry *section(const struct vt_writer *w, enum vt_section s)
{
    return &vt_writer_header(w)->section[s];
}

static inline void fill_slots(struct vt_writer *w, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        uint64_t index;
        struct vt_slot *s = vt_writer_append(w, VT_LIVE, &index);
        assert_non_null(s);
        assert_int_equal(index, i);
        assert_int_equal(s->address, 0); /* zeroed */
        s->address = 1000 + i;
        s->kind = VT_KIND_DEVICE;
        assert_int_equal(section(w, VT_LIVE)->count, i); /* not counted before it is whole */
        vt_writer_publish(w, VT_LIVE);
    }
}

/* Are the allocations those of fill_slots, in the file and in memory alike? */
static inline void check_slots(const struct vt_writer *w, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        assert_int_equal(((struct vt_slot *)vt_writer_at(w, VT_LIVE, i))->address, 1000 + i);
}

/* The folder: setup and teardown of the whole group of tests. */
static inline int make_directory(void **state)
{
    (void)state;
    return mkdtemp(directory) ? 0 : -1;
}

static inline int remove_directory(void **state)
{
    (void)state;
    return rmdir(directory);
}

#endif
