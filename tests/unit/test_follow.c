/* Following a recording that grows: what is copied once, what anew, what is left out, and what becomes of a damaged file. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "recording/follow.h"
#include "recording/writer.h"

static struct vt_writer writer;
static char directory[] = "/tmp/vt-follow-XXXXXX", error[512];

static int begin(void **state)
{
    struct vt_writer_options options = {
        .program = "follow", .host = "unit", .pid = 77, .rank = -1, .limit_bytes = 32u << 20, .events = 4096};

    (void)state;
    strcpy(directory, "/tmp/vt-follow-XXXXXX");
    options.directory = mkdtemp(directory);
    return !vt_writer_open(&writer, &options) || writer.state != VT_WRITER_FILE;
}

static int end(void **state)
{
    (void)state;
    unlink(writer.path);
    vt_writer_abandon(&writer);
    return rmdir(directory);
}

static uint32_t add_string(const char *text)
{
    return vt_writer_string(&writer, text, strlen(text));
}

static struct vt_site *add_site(uint64_t bytes)
{
    uint64_t index;
    struct vt_site *site = vt_writer_append(&writer, VT_SITES, &index);

    site->live_bytes = bytes;
    vt_writer_publish(&writer, VT_SITES);
    return site;
}

static void add_event(void)
{
    *vt_writer_next_event(&writer) = (struct vt_event){.type = VT_EVENT_MARK};
    vt_writer_publish(&writer, VT_EVENTS);
}

static void follows(void **state)
{
    struct vt_follow *f = vt_follow_open(writer.path, 0, false, error, sizeof error);
    struct vt_site *site = add_site(100);
    uint32_t first = add_string("first"), second;
    struct vt_reading *r;
    const char *text;

    (void)state;
    assert_non_null(f);
    add_event();
    r = vt_follow_refresh(f, false, error, sizeof error);
    assert_non_null(r);
    assert_int_equal(vt_reading_site(r, 0)->live_bytes, 100);
    assert_int_equal(vt_reading_header(r)->pid, 77);
    assert_int_equal(vt_reading_count(r, VT_EVENTS), 1);
    assert_int_equal(vt_reading_notes(r), 0);
    assert_int_equal(vt_follow_events(f), 1);
    assert_int_equal(vt_follow_torn(f), 0);
    text = vt_reading_chars(r, first);
    site->live_bytes = 200;
    assert_int_equal(vt_reading_site(r, 0)->live_bytes, 100); /* the copy stands still */
    for (int i = 0; i < 1000; i++)                            /* several extents more */
        add_site((uint64_t)i);
    second = add_string("second");
    r = vt_follow_refresh(f, false, error, sizeof error);
    assert_int_equal(vt_reading_count(r, VT_SITES), 1001);
    assert_int_equal(vt_reading_site(r, 0)->live_bytes, 200);
    assert_int_equal(vt_reading_site(r, 1000)->live_bytes, 999);
    assert_ptr_equal(vt_reading_chars(r, first), text); /* where it was */
    assert_string_equal(text, "first");
    assert_string_equal(vt_reading_chars(r, second), "second");
    vt_follow_close(f);
}

/* The first events, also after the ring was overwritten; none if that was so from the start. */
static void first_events(void **state)
{
    struct vt_follow *early = vt_follow_open(writer.path, 0, false, error, sizeof error), *late;
    uint64_t limit = vt_writer_header(&writer)->section[VT_EVENTS].limit;
    struct vt_reading *r;

    (void)state;
    for (int i = 0; i < 3; i++)
        add_event();
    assert_int_equal(vt_reading_count(vt_follow_refresh(early, false, error, sizeof error), VT_EVENTS), 3);
    vt_follow_close(early);
    early = vt_follow_open(writer.path, 0, false, error, sizeof error);
    ((struct vt_event *)vt_writer_at(&writer, VT_EVENTS, 2))->bytes = 5;
    while (vt_writer_header(&writer)->section[VT_EVENTS].count < limit)
        add_event();
    assert_int_equal(vt_reading_count(vt_follow_refresh(early, false, error, sizeof error), VT_EVENTS), 4096);
    for (uint64_t i = 0; i < limit; i++)
        add_event();
    r = vt_follow_refresh(early, false, error, sizeof error);
    assert_int_equal(vt_reading_event(r, 2)->bytes, 5);
    assert_int_equal(vt_follow_events(early), 2 * limit);
    late = vt_follow_open(writer.path, 0, false, error, sizeof error);
    assert_int_equal(vt_reading_count(vt_follow_refresh(late, false, error, sizeof error), VT_EVENTS), 0);
    vt_follow_close(early);
    vt_follow_close(late);
}

static void moments_at_the_end(void **state)
{
    struct vt_follow *f = vt_follow_open(writer.path, 5, false, error, sizeof error);
    struct vt_moment_site *site;
    struct vt_reading *r;
    uint64_t index;

    (void)state;
    site = vt_writer_append(&writer, VT_MOMENT_SITES, &index);
    site->live_bytes = 300;
    vt_writer_publish(&writer, VT_MOMENT_SITES);
    r = vt_follow_refresh(f, false, error, sizeof error);
    assert_int_equal(vt_reading_count(r, VT_MOMENT_SITES), 0);
    assert_int_equal(vt_reading_header(r)->pid, 5); /* as it is called here */
    r = vt_follow_refresh(f, true, error, sizeof error);
    assert_int_equal(vt_reading_moment_site(r, 0)->live_bytes, 300);
    vt_follow_close(f);
}

static void brief(void **state)
{
    struct vt_follow *f = vt_follow_open(writer.path, 0, true, error, sizeof error);
    struct vt_scope *scope;
    struct vt_reading *r;
    uint64_t index;

    (void)state;
    add_site(100);
    scope = vt_writer_append(&writer, VT_SCOPES, &index);
    scope->live_bytes = 100;
    vt_writer_publish(&writer, VT_SCOPES);
    r = vt_follow_refresh(f, false, error, sizeof error);
    assert_int_equal(vt_reading_count(r, VT_SITES), 0);
    assert_int_equal(vt_reading_scope(r, 0)->live_bytes, 100);
    vt_follow_close(f);
}

/* What somebody else does to the file must not end this process. */
static void cut(void **state)
{
    struct vt_follow *f = vt_follow_open(writer.path, 0, false, error, sizeof error);
    struct vt_reading *r;

    (void)state;
    for (int i = 0; i < 1000; i++)
        add_site(7);
    assert_non_null(vt_follow_refresh(f, false, error, sizeof error));
    assert_return_code(truncate(writer.path, VT_HEADER_BYTES + 4096), 0);
    r = vt_follow_refresh(f, false, error, sizeof error);
    assert_non_null(r);
    assert_true(vt_reading_truncated(r));
    assert_true(vt_reading_incomplete(r, VT_SITES));
    assert_return_code(truncate(writer.path, 100), 0);
    assert_null(vt_follow_refresh(f, false, error, sizeof error));
    assert_non_null(strstr(error, "shorter than its header"));
    vt_follow_close(f);
}

static void change(uint64_t at, const void *bytes, size_t count)
{
    int fd = open(writer.path, O_WRONLY);

    assert_int_equal(pwrite(fd, bytes, count, (off_t)at), count);
    close(fd);
}

static void refused(void **state)
{
    uint16_t major = VT_MAJOR + 1;
    struct vt_follow *f = vt_follow_open(writer.path, 0, false, error, sizeof error);
    char path[64];

    (void)state;
    change(offsetof(struct vt_header, major), &major, sizeof major);
    assert_null(vt_follow_refresh(f, false, error, sizeof error));
    assert_non_null(strstr(error, "written by format version 3, this program reads 2"));
    vt_follow_close(f);
    change(0, "nothing", 7);
    assert_null(vt_follow_open(writer.path, 0, false, error, sizeof error));
    assert_non_null(strstr(error, "not a vramtrack recording (bad magic)"));
    assert_null(vt_follow_open(directory, 0, false, error, sizeof error));
    assert_non_null(strstr(error, "not a regular file"));
    snprintf(path, sizeof path, "%s/none", directory);
    assert_null(vt_follow_open(path, 0, false, error, sizeof error));
    assert_non_null(strstr(error, "No such file"));
}

/* A small file that says it has terabytes of records, and one that has holes instead of them. */
static void made_up(void **state)
{
    uint64_t count = 1ull << 40, limit = UINT64_MAX;
    struct vt_follow *f;

    (void)state;
    add_site(7);
    change(offsetof(struct vt_header, section[VT_LIVE].count), &count, sizeof count);
    change(offsetof(struct vt_header, limit_bytes), &limit, sizeof limit);
    f = vt_follow_open(writer.path, 0, false, error, sizeof error);
    assert_non_null(vt_follow_refresh(f, false, error, sizeof error));
    vt_follow_close(f);
    vt_writer_append_many(&writer, VT_SITES, 1);
    count = 1ull << 33;
    change(offsetof(struct vt_header, section[VT_STRINGS].count), &count, sizeof count);
    count = writer.file_bytes;
    for (unsigned e = 1; e < 17; e++, count += 65536ull << e)
        change(offsetof(struct vt_header, section[VT_STRINGS].extent[0]) + e * sizeof count, &count, sizeof count);
    assert_return_code(truncate(writer.path, (off_t)count), 0);
    f = vt_follow_open(writer.path, 0, false, error, sizeof error);
    assert_non_null(f);
    assert_null(vt_follow_refresh(f, false, error, sizeof error));
    assert_non_null(strstr(error, "too large to be followed"));
    vt_follow_close(f);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(follows), TEST(first_events), TEST(moments_at_the_end),
                                       TEST(brief),   TEST(cut),          TEST(refused),
                                       TEST(made_up)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
