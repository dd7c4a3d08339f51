/*
 * Writes recordings for the fuzzer to start from: make_corpus FOLDER. They are those of the unit tests: an empty one,
 * one with everything, and variants of it that take other paths (killed, disk full, other record sizes).
 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "../unit/test_reader_fixture.h"

static int save(const char *folder, const char *name, const struct fixture *f)
{
    char path[PATH_MAX];
    ssize_t written;
    int fd;

    snprintf(path, sizeof path, "%s/%s.vtr", folder, name);
    if ((fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644)) < 0)
        return 1;
    written = write(fd, f->image, f->bytes);
    close(fd);
    return written != (ssize_t)f->bytes;
}

int main(int count, char **arguments)
{
    struct vt_pool pool = {.handle = 1, .release_threshold = UINT64_MAX, .after_trim_peak = 64 << 20};
    struct vt_slot slot = {.bytes = 4096, .kind = VT_KIND_DEVICE};
    struct vt_frame_name name = {.where = 1, .flags = VT_NAME_LAST};
    struct vt_event event = {.type = VT_EVENT_ALLOC, .kind = VT_KIND_DEVICE, .bytes = 4096};
    struct vt_usage usage = {.cause = VT_USAGE_END,
                             .moment = VT_NONE,
                             .flags = VT_USAGE_LISTED | VT_USAGE_FOREIGN,
                             .processes = 2,
                             .total_bytes = 9ull << 30,
                             .reserved_bytes = 1ull << 30,
                             .free_bytes = 6ull << 30,
                             .own_bytes = VT_UNKNOWN_BYTES,
                             .live_bytes = 232u << 20};
    struct vt_process_bytes process = {.pid = 7, .bytes = 532u << 20};
    struct fixture f;
    struct sample s;
    int failed = 0;

    if (count != 2) {
        fprintf(stderr, "usage: make_corpus FOLDER\n");
        return 2;
    }
    fixture_begin(&f);
    failed |= save(arguments[1], "empty", &f);
    fixture_end(&f);

    fixture_sample(&f, &s);
    fixture_add(&f, VT_POOLS, &pool);
    fixture_add(&f, VT_LIVE, &slot);
    fixture_add(&f, VT_EVENTS, &event);
    fixture_add(&f, VT_USAGES, &usage);
    fixture_add(&f, VT_PROCESSES, &process);
    process.name = fixture_string(&f, "other");
    fixture_add(&f, VT_PROCESSES, &process);
    name.function = fixture_string(&f, "named");
    fixture_add(&f, VT_NAMES, &name);
    failed |= save(arguments[1], "sample", &f);

    fixture_header(&f)->end = VT_END_RUNNING;
    failed |= save(arguments[1], "killed", &f);

    fixture_header(&f)->flags = VT_FLAG_NO_SPACE | VT_FLAG_STOPPED | VT_FLAG_MISSED;
    fixture_section(&f, VT_SITES)->extent[1] = 0;
    fixture_section(&f, VT_FRAMES)->lost = 3;
    fixture_section(&f, VT_THREADS)->record_bytes = 24;
    failed |= save(arguments[1], "partial", &f);
    fixture_end(&f);
    return failed;
}
