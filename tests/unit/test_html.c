/*
 * The page of `report --html` without a browser: its block of data is JSON in plain ASCII that nothing in a recording can
 * end, it stays within 10 MB whatever the names are, and what finds no room is added up.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "recording/reader.h"
#include "recording/writer.h"
#include "views/views.h"

#define PAGE_BYTES 10000000
#define BEGIN "<script type=\"application/json\" id=\"data\">"

static struct vt_writer writer;
static char directory[] = "/tmp/vt-html-XXXXXX";

/* A name as long as one may be, of what is written longest in JSON, different for each number. */
static uint32_t long_name(unsigned number, size_t length)
{
    char *text = malloc(length + 32);
    size_t used = (size_t)sprintf(text, "%u</script><!--\"\\\n", number);
    uint32_t id;

    while (used + 2 < length) {
        memcpy(text + used, "\xc2\x85", 2);
        used += 2;
    }
    id = vt_writer_string(&writer, text, used);
    free(text);
    assert_int_not_equal(id, 0);
    return id;
}

static void *append(enum vt_section section)
{
    uint64_t index;
    void *record = vt_writer_append(&writer, section, &index);

    assert_non_null(record);
    return record;
}

static uint32_t python_frame(uint32_t parent, uint32_t name)
{
    struct vt_code *code = append(VT_CODES);
    struct vt_frame *frame;

    *code = (struct vt_code){.file = name, .function = name, .first_line = 1};
    vt_writer_publish(&writer, VT_CODES);
    frame = append(VT_FRAMES);
    *frame = (struct vt_frame){parent, VT_PYTHON,
                               (vt_writer_header(&writer)->section[VT_CODES].count - 1) << 32 | VT_PYTHON_ENTRY | 7};
    vt_writer_publish(&writer, VT_FRAMES);
    return (uint32_t)vt_writer_header(&writer)->section[VT_FRAMES].count;
}

static void add_site(uint32_t stack, uint32_t api, uint64_t bytes)
{
    struct vt_site *site = append(VT_SITES);

    *site = (struct vt_site){.python_stack = stack,
                             .api = api,
                             .level = VT_LEVEL_DRIVER,
                             .kind = VT_KIND_DEVICE,
                             .live_bytes = bytes,
                             .live_count = 1,
                             .peak_bytes = bytes,
                             .at_peak_bytes = bytes,
                             .alloc_calls = 1,
                             .total_bytes = bytes};
    vt_writer_publish(&writer, VT_SITES);
}

static void add_event(unsigned type, uint64_t ns, uint64_t address, uint64_t bytes, uint32_t site)
{
    struct vt_event *event = vt_writer_next_event(&writer);

    assert_non_null(event);
    *event = (struct vt_event){.time_ns = ns, .address = address, .bytes = bytes, .site = site, .type = (uint8_t)type};
    vt_writer_publish(&writer, VT_EVENTS);
}

static void begin(void)
{
    struct vt_writer_options options = {.program = "</title><script>",
                                        .host = "h",
                                        .pid = 1,
                                        .rank = -1,
                                        .start_unix_ns = 1700000000000000000u,
                                        .limit_bytes = 1ull << 30,
                                        .events = 1 << 16};

    strcpy(directory + sizeof directory - 7, "XXXXXX");
    assert_non_null(mkdtemp(directory));
    options.directory = directory;
    memset(&writer, 0, sizeof writer);
    assert_true(vt_writer_open(&writer, &options));
    assert_int_equal(writer.state, VT_WRITER_FILE);
}

/* The page of what was written; the recording is removed. To be unmapped. */
static const char *page(size_t *bytes)
{
    struct vt_report_request request = {.recording_path = "x.vtr", .no_symbols = true, .failure = VT_NONE};
    char error[256];
    struct vt_reading *reading;
    struct stat status;
    const char *text;

    vt_writer_header(&writer)->end = VT_END_EXIT;
    reading = vt_reading_open(writer.path, error, sizeof error);
    assert_non_null(reading);
    request.fd = memfd_create("page", MFD_CLOEXEC);
    assert_int_equal(vt_html_write(reading, &request), 0);
    vt_reading_close(reading);
    unlink(writer.path);
    rmdir(directory);
    assert_int_equal(fstat(request.fd, &status), 0);
    *bytes = (size_t)status.st_size;
    text = mmap(NULL, *bytes, PROT_READ, MAP_PRIVATE, request.fd, 0);
    assert_ptr_not_equal(text, MAP_FAILED);
    close(request.fd);
    return text;
}

/* The block of data, which must be harmless. To be released. */
static json_t *data_of(const char *text, size_t bytes)
{
    const char *start = memmem(text, bytes, BEGIN, strlen(BEGIN)), *end, *at;
    json_error_t error;
    json_t *data;

    assert_non_null(start);
    start += strlen(BEGIN);
    end = memmem(start, bytes - (size_t)(start - text), "</script>", 9);
    assert_non_null(end);
    for (at = start; at < end; at++)
        assert_true(*at == '\n' || (*at >= ' ' && *at < 127 && *at != '<'));
    data = json_loadb(start, (size_t)(end - start), 0, &error);
    if (!data)
        fail_msg("%s at %d", error.text, error.position);
    return data;
}

static json_int_t sum(json_t *rows, const char *key)
{
    json_int_t all = 0;
    size_t i;
    json_t *row;

    json_array_foreach(rows, i, row) all += json_integer_value(json_object_get(row, key));
    return all;
}

/* Where a column is in the rows of "sites". */
static size_t column(json_t *data, const char *key)
{
    json_t *name;
    size_t i;

    json_array_foreach(json_object_get(data, "site_keys"), i, name) if (!strcmp(json_string_value(name), key)) return i;
    fail_msg("no column %s", key);
    return 0;
}

static void test_long_names(void **state)
{
    json_t *data, *row;
    json_int_t live = 0, expected = 0;
    const char *text;
    size_t bytes, i, at;

    (void)state;
    begin();
    for (unsigned n = 0; n < 600; n++) {
        uint32_t stack = 0;

        for (unsigned depth = 0; depth < 8; depth++)
            stack = python_frame(stack, long_name(n * 8 + depth, 9000));
        add_site(stack, long_name(n, 3000), 4096 + n);
        expected += 4096 + n;
    }
    for (unsigned n = 0; n < 600; n++)
        add_event(VT_EVENT_MARK, n * 1000, long_name(n, 9000), 0, VT_NONE);
    for (unsigned n = 0; n < 300; n++) {
        struct vt_program *program = append(VT_PROGRAMS);

        *program = (struct vt_program){.name = long_name(n, 9000), .framework = VT_FRAMEWORK_JAX};
        vt_writer_publish(&writer, VT_PROGRAMS);
    }
    text = page(&bytes);
    assert_in_range(bytes, 1000000, PAGE_BYTES);
    data = data_of(text, bytes);
    at = column(data, "live_bytes");
    json_array_foreach(json_object_get(data, "sites"), i, row) live += json_integer_value(json_array_get(row, at));
    assert_int_equal(live + sum(json_object_get(data, "others"), "live_bytes"), expected);
    assert_int_equal(
        json_array_size(json_object_get(data, "sites")) + (size_t)sum(json_object_get(data, "others"), "sites"), 600);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(data, "left_out"), "sites")),
                     sum(json_object_get(data, "others"), "sites"));
    assert_int_equal(json_array_size(json_object_get(data, "programs")) +
                         (size_t)json_integer_value(json_object_get(json_object_get(data, "left_out"), "programs")),
                     300);
    assert_string_equal(json_string_value(json_object_get(data, "program")), "</title><script>");
    json_decref(data);
    munmap((void *)text, bytes);
}

static const json_int_t *points(json_t *list, json_int_t values[], size_t most, size_t *count)
{
    *count = json_array_size(list);
    assert_in_range(*count, 1, most);
    for (size_t i = 0; i < *count; i++)
        values[i] = json_integer_value(json_array_get(list, i));
    return values;
}

/* Few events are shown one by one: [time in us, low, high]; the last layer is all others. */
static void test_timeline(void **state)
{
    static const json_int_t expected[] = {0, 0, 0, 1, 100, 100, 2, 300, 300, 3, 200, 200};
    struct vt_device *device;
    struct vt_scope *scope;
    json_int_t values[64];
    json_t *data, *timeline, *layers;
    const char *text;
    size_t bytes, count;

    (void)state;
    begin();
    device = append(VT_DEVICES);
    *device = (struct vt_device){.name = "GPU", .total_bytes = 1000};
    vt_writer_publish(&writer, VT_DEVICES);
    scope = append(VT_SCOPES);
    *scope = (struct vt_scope){.level = VT_LEVEL_DRIVER, .live_bytes = 200, .peak_bytes = 300, .peak_ns = 2000};
    vt_writer_publish(&writer, VT_SCOPES);
    add_site(0, long_name(1, 40), 0);
    add_site(0, long_name(2, 40), 200);
    add_event(VT_EVENT_ALLOC, 1000, 1, 100, 0);
    add_event(VT_EVENT_ALLOC, 2000, 2, 200, 1);
    add_event(VT_EVENT_FREE, 3000, 1, 100, 0);
    text = page(&bytes);
    data = data_of(text, bytes);
    timeline = json_object_get(data, "timeline");
    points(json_object_get(json_array_get(json_object_get(timeline, "scopes"), 0), "points"), values, 64, &count);
    assert_int_equal(count, 12);
    assert_memory_equal(values, expected, sizeof expected);
    layers = json_array_get(json_object_get(timeline, "layers"), 0);
    assert_int_equal(json_integer_value(json_object_get(layers, "device")), 0);
    points(json_object_get(layers, "points"), values, 64, &count);
    assert_int_equal(json_array_size(json_object_get(layers, "names")), 2);
    assert_int_equal(count, 15); /* the start, three events, the end */
    assert_int_equal(values[7], 300);
    assert_int_equal(values[10], 200);
    assert_int_equal(values[12], 3);
    assert_int_equal(json_integer_value(json_object_get(timeline, "events_lost")), 0);
    json_decref(data);
    munmap((void *)text, bytes);
}

/* Nothing at all is a page as well. */
static void test_empty(void **state)
{
    const char *text;
    size_t bytes;
    json_t *data;

    (void)state;
    begin();
    text = page(&bytes);
    data = data_of(text, bytes);
    assert_int_equal(json_array_size(json_object_get(data, "sites")), 0);
    assert_int_equal(json_array_size(json_object_get(data, "findings")), 1);
    assert_memory_equal(text, "<!DOCTYPE html>\n", 16);
    assert_memory_equal(text + bytes - 8, "</html>\n", 8);
    json_decref(data);
    munmap((void *)text, bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_long_names), cmocka_unit_test(test_timeline),
                                       cmocka_unit_test(test_empty)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
