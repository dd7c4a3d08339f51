/*
 * Copies of instructions (free-threaded CPython since 3.14): code objects as bytes, with arrays that are too short, freed,
 * or replaced by another thread at any moment.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "preload/python/interpreter.h"

#define UNITS 50
#define COPIES 40

static const struct vt_py_layout *at;
static char copies[COPIES][2 * UNITS]; /* each another's neighbour */

struct array { /* _PyCodeArray */
    int64_t size;
    const char *entries[];
};

struct code {
    char bytes[512];
};

static struct array *new_array(int64_t size)
{
    struct array *a = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(a, MAP_FAILED);
    a->size = size;
    for (int64_t i = 1; i < size; i++)
        a->entries[i] = copies[i];
    return a;
}

static void put(struct code *c, unsigned offset, const void *value, size_t bytes)
{
    memcpy(c->bytes + offset, value, bytes);
}

static void make_code(struct code *c, uint32_t version, struct array *array)
{
    const uint64_t units = UNITS;
    memset(c, 0, sizeof *c);
    put(c, at->ob_size, &units, sizeof units);
    put(c, at->code_version, &version, sizeof version);
    put(c, at->code_tlbc, &array, sizeof array);
}

static int setup(void **state)
{
    (void)state;
    at = vt_py_layout(14, true);
    return at ? 0 : -1;
}

static void found(void **state)
{
    static _Alignas(16) struct code c;
    struct array *a = new_array(4);
    (void)state;
    make_code(&c, 7, a);
    assert_ptr_equal(vt_py_copy(at, &c, 3, copies[3]), copies[3]);
    assert_ptr_equal(vt_py_copy(at, &c, 3, copies[3] + 2 * UNITS - 2), copies[3]);
    assert_ptr_equal(vt_py_copy(at, &c, 1, copies[1] + 10), copies[1]);
    assert_null(vt_py_copy(at, &c, 3, copies[3] - 2)); /* not one of its instructions */
    assert_null(vt_py_copy(at, &c, 3, copies[3] + 2 * UNITS));
    assert_null(vt_py_copy(at, &c, 4, copies[4]));
    assert_null(vt_py_copy(at, &c, INT32_MAX, copies[4]));
    assert_null(vt_py_copy(at, &c, -1, copies[4]));
    a->entries[2] = NULL;
    assert_null(vt_py_copy(at, &c, 2, copies[2]));
    munmap(a, 4096);
    assert_ptr_equal(vt_py_copy(at, &c, 3, copies[3] + 4), copies[3]); /* known */
    assert_null(vt_py_copy(at, &c, 2, copies[2]));                     /* the array is gone, and nobody dies */
    make_code(&c, 8, NULL);
    assert_null(vt_py_copy(at, &c, 3, copies[3]));
}

static void another_code_object(void **state)
{
    static _Alignas(16) struct code c;
    struct array *a = new_array(4), *b = new_array(4);
    (void)state;
    b->entries[3] = copies[20];
    make_code(&c, 100, a);
    assert_ptr_equal(vt_py_copy(at, &c, 3, copies[3]), copies[3]);
    make_code(&c, 101, b); /* at the same address, later */
    assert_ptr_equal(vt_py_copy(at, &c, 3, copies[20] + 2), copies[20]);
    make_code(&c, 0, a); /* the interpreter has run out of versions: nothing is remembered */
    assert_ptr_equal(vt_py_copy(at, &c, 3, copies[3]), copies[3]);
    make_code(&c, 0, b);
    assert_ptr_equal(vt_py_copy(at, &c, 3, copies[20]), copies[20]);
    make_code(&c, 102, a); /* the number's thread has ended, and the next one with that number has made another copy */
    assert_ptr_equal(vt_py_copy(at, &c, 3, copies[3]), copies[3]);
    a->entries[3] = copies[21];
    assert_ptr_equal(vt_py_copy(at, &c, 3, copies[21] + 8), copies[21]);
    munmap(a, 4096), munmap(b, 4096);
}

/* More than are remembered: each is right all the same. */
static void many(void **state)
{
    struct array *a = new_array(COPIES);
    struct code *c = aligned_alloc(16, sizeof *c);
    (void)state;
    assert_non_null(c);
    for (unsigned round = 0; round < 2; round++)
        for (uint32_t version = 1000; version < 3000; version++) {
            make_code(c, version, a);
            for (int32_t i = 1; i < 10; i++)
                assert_ptr_equal(vt_py_copy(at, c, i, copies[i] + version % 50 * 2), copies[i]);
        }
    munmap(a, 4096);
    free(c);
}

static _Alignas(16) struct code shared;
static bool stop;

/* A longer array in the place of the last one, which is unmapped: far sooner than the interpreter would free it. */
static void *replace(void *state)
{
    struct array *old = NULL;
    (void)state;
    for (unsigned i = 0; !__atomic_load_n(&stop, __ATOMIC_RELAXED); i++) {
        struct array *a = new_array(5 + i % (COPIES - 5));
        __atomic_store_n((struct array **)(void *)(shared.bytes + at->code_tlbc), a, __ATOMIC_RELEASE);
        if (old)
            munmap(old, 4096);
        old = a;
    }
    return NULL;
}

static void replaced_meanwhile(void **state)
{
    pthread_t thread;
    unsigned right = 0;
    (void)state;
    make_code(&shared, 0, new_array(5)); /* nothing is remembered, so that every look is a new one */
    assert_int_equal(pthread_create(&thread, NULL, replace, NULL), 0);
    for (unsigned i = 0; i < 20000; i++) {
        const char *start = vt_py_copy(at, &shared, 4, copies[4] + 6);
        assert_true(!start || start == copies[4]);
        right += start != NULL;
    }
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    assert_true(right > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(found), cmocka_unit_test(another_code_object),
                                       cmocka_unit_test(many), cmocka_unit_test(replaced_meanwhile)};
    return cmocka_run_group_tests(tests, setup, NULL);
}
