/*
 * The writer without room: sections that are full, the bound of the file, a file that is taken away or never was. Records live on in
 * memory, and what is lost is counted.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "test_writer_fixture.h"

static void test_section_that_is_full(void **state)
{
    (void)state;
    struct vt_writer w = open_writer(8 * MIB);
    struct vt_section_entry *s = section(&w, VT_SITES);
    uint64_t index, limit = s->limit;
    for (uint64_t i = 0; i < limit; i++) {
        assert_non_null(vt_writer_append(&w, VT_SITES, &index));
        vt_writer_publish(&w, VT_SITES);
    }
    for (int i = 0; i < 3; i++)
        assert_null(vt_writer_append(&w, VT_SITES, &index));
    assert_int_equal(s->count, limit);
    assert_int_equal(s->lost, 3);
    remove_writer(&w);
}

static void test_strings_that_find_no_room(void **state)
{
    static char text[60000];
    unsigned kept = 0;
    (void)state;
    struct vt_writer w = open_writer(8 * MIB);
    memset(text, 'y', sizeof text);
    while (vt_writer_string(&w, text, sizeof text))
        assert_true(++kept < 1000);
    assert_true(kept >= 3);
    assert_true(section(&w, VT_STRINGS)->lost > 0);
    uint64_t count = section(&w, VT_STRINGS)->count;
    assert_int_equal(vt_writer_string(&w, text, sizeof text), 0);
    assert_int_equal(section(&w, VT_STRINGS)->count, count);
    assert_true(count <= section(&w, VT_STRINGS)->limit);
    remove_writer(&w);
}

/* Room is made in the file or not at all, and asking for too much is no loss. */
static void test_reserve(void **state)
{
    (void)state;
    struct vt_writer w = open_writer(8 * MIB);
    struct vt_section_entry *s = section(&w, VT_NAMES);
    struct stat before, after;
    char away[VT_PATH_MAX + 8];
    snprintf(away, sizeof away, "%s.away", w.path);
    assert_true(vt_writer_reserve(&w, VT_NAMES, s->first + 1)); /* two extents */
    assert_int_not_equal(s->extent[1], 0);
    assert_int_equal(s->count, 0);
    assert_int_equal(vt_writer_append_many(&w, VT_NAMES, s->first + 1), 0);
    vt_writer_publish_many(&w, VT_NAMES, s->first + 1);
    assert_false(vt_writer_reserve(&w, VT_NAMES, s->limit - s->count + 1)); /* beyond the section's share */
    assert_true(vt_writer_reserve(&w, VT_NAMES, s->limit - s->count));
    while (vt_writer_reserve(&w, VT_LIVE, section(&w, VT_LIVE)->first)) { /* until the file is as large as it may get */
        uint64_t first = vt_writer_append_many(&w, VT_LIVE, section(&w, VT_LIVE)->first);
        assert_int_not_equal(first, UINT64_MAX);
        vt_writer_publish_many(&w, VT_LIVE, section(&w, VT_LIVE)->first);
    }
    assert_int_equal(stat(w.path, &before), 0);
    assert_in_range(before.st_size, 4 * MIB, 8 * MIB);
    assert_int_equal(w.state, VT_WRITER_FILE);
    assert_int_equal(vt_writer_header(&w)->flags, 0);
    assert_int_equal(section(&w, VT_LIVE)->lost + s->lost, 0);
    assert_int_equal(rename(w.path, away), 0); /* no way to grow any more */
    assert_false(vt_writer_reserve(&w, VT_FRAMES, 1));
    assert_int_equal(w.state, VT_WRITER_FILE);
    assert_int_equal(vt_writer_header(&w)->flags, 0);
    assert_int_equal(rename(away, w.path), 0);
    assert_true(vt_writer_reserve(&w, VT_TOTALS, 1));
    assert_int_equal(stat(w.path, &after), 0);
    assert_int_equal(after.st_size - before.st_size,
                     (section(&w, VT_TOTALS)->first * sizeof(struct vt_total) + VT_PAGE - 1) / VT_PAGE * VT_PAGE);
    remove_writer(&w);
}

/* Beyond the bound records live on in memory; the file stays within it and says that it was reached. */
static void test_bound_reached(void **state)
{
    enum { COUNT = 400000 };
    struct stat st;
    (void)state;
    struct vt_writer w = open_writer(8 * MIB);
    fill_slots(&w, COUNT);
    assert_int_equal(w.state, VT_WRITER_FILE);
    assert_int_equal(stat(w.path, &st), 0);
    assert_true((uint64_t)st.st_size <= 8 * MIB);
    assert_int_equal(vt_writer_header(&w)->used_bytes, st.st_size);
    assert_true(vt_writer_header(&w)->flags & VT_FLAG_BOUND_REACHED);
    assert_false(vt_writer_header(&w)->flags & VT_FLAG_NO_SPACE);
    check_slots(&w, COUNT);
    /* A small extent still finds room in the file. */
    uint64_t index;
    assert_non_null(vt_writer_append(&w, VT_POOLS, &index));
    assert_true(section(&w, VT_POOLS)->extent[0] < 8 * MIB);
    char error[200];
    struct vt_reading *r = vt_reading_open(w.path, error, sizeof error);
    assert_non_null(r);
    assert_true(vt_reading_incomplete(r, VT_LIVE));
    uint64_t there = 0;
    for (uint64_t i = 0; i < COUNT; i++) {
        const struct vt_slot *s = vt_reading_slot(r, i);
        there += s != NULL;
        if (s)
            assert_int_equal(s->address, 1000 + i);
    }
    assert_true(there > 50000 && there < COUNT);
    vt_reading_close(r);
    remove_writer(&w);
}

/* The file is taken away: one state change, everything goes on in memory, nothing is written elsewhere. */
static void test_file_taken_away(void **state)
{
    (void)state;
    struct vt_writer w = open_writer(8 * MIB);
    fill_slots(&w, 1000);
    assert_int_equal(unlink(w.path), 0);
    int fd = open(w.path, O_CREAT | O_EXCL | O_WRONLY, 0600); /* somebody else's now */
    assert_true(fd >= 0);
    section(&w, VT_LIVE)->count = 0;
    memset(vt_writer_at(&w, VT_LIVE, 0), 0, 1000 * sizeof(struct vt_slot));
    errno = 99;
    fill_slots(&w, 5000);
    assert_int_equal(errno, 99);
    assert_int_equal(w.state, VT_WRITER_PARTIAL);
    assert_int_equal(w.error, ESTALE);
    assert_true(vt_writer_header(&w)->flags & VT_FLAG_NO_SPACE);
    assert_int_equal(lseek(fd, 0, SEEK_END), 0);
    check_slots(&w, 5000);
    close(fd);
    remove_writer(&w);
}

static void test_no_directory(void **state)
{
    (void)state;
    struct vt_writer w;
    struct vt_writer_options o = options(8 * MIB);
    o.directory = "/nonexistent/directory";
    assert_true(vt_writer_open(&w, &o));
    assert_int_equal(w.state, VT_WRITER_MEMORY);
    assert_int_equal(w.error, ENOENT);
    assert_string_equal(w.path, "");
    fill_slots(&w, 5000);
    check_slots(&w, 5000);
    vt_writer_abandon(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_section_that_is_full),
        cmocka_unit_test(test_strings_that_find_no_room),
        cmocka_unit_test(test_reserve),
        cmocka_unit_test(test_bound_reached),
        cmocka_unit_test(test_file_taken_away),
        cmocka_unit_test(test_no_directory),
    };

    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
