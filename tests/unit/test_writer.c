/*
 * The writer: names of files, extents and strings, the ring, and the image. What was written through the mapping is read back from
 * the file itself, and by the reader from images. What happens without room: test_writer_limits.c.
 */
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

static void test_name_and_header(void **state)
{
    struct stat st;
    char expected[300];
    (void)state;
    struct vt_writer_options o = options(64 * MIB);
    o.program = "../a b$(c)";
    o.rank = 3;
    struct vt_writer w;
    assert_true(vt_writer_open(&w, &o));
    snprintf(expected, sizeof expected, "%s/vramtrack._._a_b__c_.here.rank3.77.5.vtr", directory);
    assert_string_equal(w.path, expected);
    assert_int_equal(stat(w.path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    const struct vt_header *h = vt_writer_header(&w);
    assert_memory_equal(h->magic, VT_MAGIC, 8);
    assert_int_equal(h->section_count, VT_SECTION_COUNT);
    assert_int_equal(h->pid, 77);
    assert_int_equal(h->used_bytes, st.st_size);
    assert_int_equal(h->flags, 0);
    remove_writer(&w);
}

/* The second of a name gets the next millisecond, and the first stays as it is. */
static void test_name_that_is_taken(void **state)
{
    (void)state;
    struct vt_writer a = open_writer(8 * MIB), b = open_writer(8 * MIB);
    assert_string_not_equal(a.path, b.path);
    assert_non_null(strstr(a.path, ".77.5.vtr"));
    assert_non_null(strstr(b.path, ".77.6.vtr"));
    assert_int_not_equal(a.inode, b.inode);
    remove_writer(&a);
    remove_writer(&b);
}

static void test_records_reach_the_file(void **state)
{
    enum { COUNT = 10000 };
    (void)state;
    struct vt_writer w = open_writer(64 * MIB);
    fill_slots(&w, 1);
    struct vt_slot *first = vt_writer_at(&w, VT_LIVE, 0);
    section(&w, VT_LIVE)->count = 0;
    first->address = 0;
    fill_slots(&w, COUNT);
    assert_ptr_equal(first, vt_writer_at(&w, VT_LIVE, 0)); /* records never move */
    int fd = open(w.path, O_RDONLY);
    struct vt_header h;
    assert_int_equal(pread(fd, &h, sizeof h, 0), sizeof h);
    assert_int_equal(h.section[VT_LIVE].count, COUNT);
    for (uint64_t i = 0; i < COUNT; i++) {
        struct vt_slot s;
        assert_int_equal(pread(fd, &s, sizeof s, (off_t)vt_record_offset(&h.section[VT_LIVE], i)), sizeof s);
        assert_int_equal(s.address, 1000 + i);
    }
    assert_int_equal(lseek(fd, 0, SEEK_END), h.used_bytes);
    close(fd);
    for (unsigned e = 0; e < VT_MAX_EXTENTS; e++) { /* doubling, page aligned, as many as needed */
        assert_int_equal(h.section[VT_LIVE].extent[e] % VT_PAGE, 0);
        assert_int_equal(h.section[VT_LIVE].extent[e] != 0, e < 4); /* 1024 * (2^4 - 1) = 15360 */
    }
    remove_writer(&w);
}

static void test_append_many(void **state)
{
    (void)state;
    struct vt_writer w = open_writer(64 * MIB);
    assert_int_equal(vt_writer_append_many(&w, VT_MOMENT_SITES, 5000), 0); /* over three extents */
    for (uint64_t i = 0; i < 5000; i++)
        *(struct vt_moment_site *)vt_writer_at(&w, VT_MOMENT_SITES, i) = (struct vt_moment_site){.site = (uint32_t)i,
                                                                                                 .live_bytes = i * 2};
    vt_writer_publish_many(&w, VT_MOMENT_SITES, 5000);
    assert_int_equal(vt_writer_append_many(&w, VT_MOMENT_SITES, 10), 5000);
    for (uint64_t i = 0; i < 5000; i++)
        assert_int_equal(((struct vt_moment_site *)vt_writer_at(&w, VT_MOMENT_SITES, i))->live_bytes, i * 2);
    uint64_t limit = section(&w, VT_MOMENT_SITES)->limit, lost = section(&w, VT_MOMENT_SITES)->lost;
    assert_int_equal(vt_writer_append_many(&w, VT_MOMENT_SITES, limit), UINT64_MAX);
    assert_int_equal(section(&w, VT_MOMENT_SITES)->lost, lost + limit);
    assert_int_equal(section(&w, VT_MOMENT_SITES)->count, 5000);
    remove_writer(&w);
}

/* Strings of many lengths: each is whole inside one extent, found by its id, and never overwritten by a later one. */
static void test_strings(void **state)
{
    enum { COUNT = 3000 };
    static uint32_t id[COUNT];
    static char text[70000];
    (void)state;
    struct vt_writer w = open_writer(64 * MIB);
    assert_int_equal(vt_writer_string(&w, NULL, 0), 0);
    assert_int_equal(vt_writer_string(&w, "", 0), 0);
    for (unsigned i = 0; i < COUNT; i++) {
        size_t n = 1 + i * 7919 % 997;
        memset(text, 'a' + (char)(i % 26), n);
        id[i] = vt_writer_string(&w, text, n);
        assert_int_not_equal(id[i], 0);
        assert_int_equal(id[i] % 4, 0);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        const struct vt_string *s = vt_writer_at(&w, VT_STRINGS, id[i]);
        size_t n = 1 + i * 7919 % 997;
        assert_int_equal(s->length, n);
        memset(text, 'a' + (char)(i % 26), n);
        assert_memory_equal(s->text, text, n);
        assert_int_equal(s->text[n], 0);
        uint64_t last = id[i] + sizeof *s + n; /* the NUL lies in the same extent, at the same distance */
        assert_ptr_equal(vt_writer_at(&w, VT_STRINGS, last), (const char *)s + sizeof *s + n);
    }
    memset(text, 'x', sizeof text);
    uint32_t longest = vt_writer_string(&w, text, sizeof text); /* cut */
    assert_int_not_equal(longest, 0);
    assert_int_equal(((const struct vt_string *)vt_writer_at(&w, VT_STRINGS, longest))->length, 65535 - 8);
    remove_writer(&w);
}

static void test_ring_wraps(void **state)
{
    (void)state;
    struct vt_writer w = open_writer(64 * MIB);
    struct vt_section_entry *s = section(&w, VT_EVENTS);
    uint64_t total = 2 * s->limit + 17;
    assert_int_equal(s->limit, 4096);
    for (uint64_t i = 0; i < total; i++) {
        struct vt_event *e = vt_writer_next_event(&w);
        assert_non_null(e);
        *e = (struct vt_event){.time_ns = i, .type = VT_EVENT_ALLOC};
        vt_writer_publish(&w, VT_EVENTS);
    }
    char error[200];
    struct vt_reading *r = vt_reading_open(w.path, error, sizeof error);
    assert_non_null(r);
    assert_int_equal(s->count, total);
    assert_null(vt_reading_event(r, total - s->limit - 1));
    for (uint64_t i = total - s->limit; i < total; i++)
        assert_int_equal(vt_reading_event(r, i)->time_ns, i);
    assert_null(vt_reading_event(r, total));
    vt_reading_close(r);
    remove_writer(&w);
}

/* The image holds what a report of the process itself needs, from the file and from memory alike: the newest events, and slots as
 * long as they are few. */
static void check_image(struct vt_writer *w, uint64_t count, uint64_t slots)
{
    void *image = NULL;
    uint32_t name = vt_writer_string(w, "hello", 5);
    struct vt_event *e = vt_writer_next_event(w);
    e->time_ns = 5;
    vt_writer_publish(w, VT_EVENTS);
    for (uint64_t i = 0, index; i < count; i++) {
        struct vt_frame *f = vt_writer_append(w, VT_FRAMES, &index);
        assert_non_null(f);
        f->where = 1000 + i;
        vt_writer_publish(w, VT_FRAMES);
    }
    uint64_t bytes = vt_writer_image(w, &image);
    assert_true(bytes > count * sizeof(struct vt_frame));
    assert_true(bytes < count * sizeof(struct vt_frame) + slots * sizeof(struct vt_slot) +
                            MIB);                                  /* records that are not there yet are not copied */
    ((struct vt_frame *)vt_writer_at(w, VT_FRAMES, 0))->where = 1; /* private: changes are not seen */
    struct vt_reading *r = vt_reading_from_memory(image, bytes);
    assert_non_null(r);
    assert_int_equal(vt_reading_count(r, VT_FRAMES), count);
    for (uint64_t i = 0; i < count; i++)
        assert_int_equal(vt_reading_frame(r, (uint32_t)i + 1)->where, 1000 + i);
    assert_string_equal(vt_reading_chars(r, name), "hello");
    assert_int_equal(vt_reading_event(r, 0)->time_ns, 5);
    assert_null(vt_reading_event(r, 1));
    assert_int_equal(vt_reading_count(r, VT_LIVE), slots);
    for (uint64_t i = 0; i < slots; i++)
        assert_int_equal(vt_reading_slot(r, i)->address, 1000 + i);
    assert_int_equal(vt_reading_header(r)->pid, 77);
    vt_reading_close(r);
    vt_writer_free_image(image, bytes);
}

static void test_image(void **state)
{
    (void)state;
    struct vt_writer w = open_writer(64 * MIB);
    fill_slots(&w, 9000);
    check_image(&w, 9000, 9000);
    remove_writer(&w);
}

static void test_image_beyond_the_bound(void **state)
{
    (void)state;
    struct vt_writer w = open_writer(8 * MIB);
    fill_slots(&w, 300000);
    check_image(&w, 5000, 0); /* the file is full: these are in memory */
    remove_writer(&w);
}

/* Of many events, the newest; of a ring that is smaller, all that it has. */
static void check_newest(uint64_t events, uint64_t total, uint64_t newest)
{
    struct vt_writer_options o = options(64 * MIB);
    struct vt_writer w;
    void *image = NULL;
    o.events = events;
    assert_true(vt_writer_open(&w, &o));
    for (uint64_t i = 0; i < total; i++) {
        vt_writer_next_event(&w)->time_ns = i;
        vt_writer_publish(&w, VT_EVENTS);
    }
    uint64_t size = vt_writer_image(&w, &image);
    struct vt_reading *r = vt_reading_from_memory(image, size);
    assert_non_null(r);
    assert_int_equal(vt_reading_events(r), total);
    assert_int_equal(vt_reading_count(r, VT_EVENTS), newest);
    assert_null(vt_reading_event(r, total - newest - 1));
    for (uint64_t i = total - newest; i < total; i++)
        assert_int_equal(vt_reading_event(r, i)->time_ns, i);
    assert_null(vt_reading_event(r, total));
    assert_int_equal(vt_reading_notes(r), 0);
    vt_reading_close(r);
    vt_writer_free_image(image, size);
    remove_writer(&w);
}

static void test_image_of_the_newest_events(void **state)
{
    (void)state;
    check_newest(1 << 20, 65536, 65536);
    check_newest(1 << 20, 65537, 65536);
    check_newest(65536, 300000, 65536);
    check_newest(4096, 300000, 4096);
}

/* What the child of a fork does: the parent's file is left alone. */
static void test_abandon(void **state)
{
    struct stat before, after;
    (void)state;
    struct vt_writer w = open_writer(8 * MIB);
    char path[VT_PATH_MAX];
    memcpy(path, w.path, sizeof path);
    fill_slots(&w, 10);
    assert_int_equal(stat(path, &before), 0);
    vt_writer_abandon(&w);
    vt_writer_abandon(&w); /* twice does no harm */
    assert_int_equal(stat(path, &after), 0);
    assert_int_equal(before.st_size, after.st_size);
    char error[200];
    struct vt_reading *r = vt_reading_open(path, error, sizeof error);
    assert_non_null(r);
    assert_int_equal(vt_reading_count(r, VT_LIVE), 10);
    vt_reading_close(r);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_name_and_header),
        cmocka_unit_test(test_name_that_is_taken),
        cmocka_unit_test(test_records_reach_the_file),
        cmocka_unit_test(test_append_many),
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_ring_wraps),
        cmocka_unit_test(test_image),
        cmocka_unit_test(test_image_beyond_the_bound),
        cmocka_unit_test(test_image_of_the_newest_events),
        cmocka_unit_test(test_abandon),
    };

    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
