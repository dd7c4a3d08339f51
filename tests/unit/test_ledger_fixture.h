/*
 * What the ledger needs of the rest of the library, for tests of it alone: the state, a clock that the test sets, and a
 * recording in a folder of its own. Defines these things, so it is included once in a program.
 *
 * Include after cmocka.h.
 */
#ifndef VRAMTRACK_TEST_LEDGER_FIXTURE_H
#define VRAMTRACK_TEST_LEDGER_FIXTURE_H

#include <unistd.h>

#include "preload/ledger.h"
#include "preload/phase.h"
#include "preload/resolve.h"
#include "preload/state.h"

struct vt_state vt_state;
__thread struct vt_tls vt_tls;
static uint64_t now; /* what vt_now() says, ns */

bool vt_state_lock(bool start)
{
    (void)start;
    return true;
}

void vt_state_unlock(void)
{
}

uint64_t vt_now(void)
{
    return now;
}

uint32_t vt_thread_new(void)
{
    return 0;
}

uint32_t vt_intern(const char *text)
{
    return vt_writer_string(&vt_state.writer, text, strlen(text));
}

const char *vt_entry_name(unsigned e)
{
    return e == 1 ? "cuMemAlloc_v2" : "other";
}

static char directory[] = "/tmp/vt-ledger-XXXXXX";

static inline void open_writer(uint64_t limit)
{
    struct vt_writer_options o = {.directory = directory,
                                  .program = "ledger",
                                  .host = "here",
                                  .pid = 1,
                                  .rank = -1,
                                  .start_unix_ns = 1000000,
                                  .limit_bytes = limit,
                                  .events = 4096};
    now = 0;
    vt_ledger_forget();
    vt_phase_forget();
    assert_true(vt_writer_open(&vt_state.writer, &o));
    assert_int_equal(vt_state.writer.state, VT_WRITER_FILE);
}

static inline void close_writer(void)
{
    assert_int_equal(unlink(vt_state.writer.path), 0);
    vt_writer_abandon(&vt_state.writer);
}

static inline void *record(enum vt_section section, uint64_t i)
{
    return vt_writer_at(&vt_state.writer, section, i);
}

/* The folder of the recordings: setup and teardown of the whole group of tests. */
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
