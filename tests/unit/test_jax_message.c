/* What the texts of XLA's errors say of memory. The texts are those of issue threads and plugins; see jax/message.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "preload/jax/plugin.h"

static uint64_t bytes(const char *text)
{
    return vt_jax_requested_bytes(text, strlen(text));
}

static bool memory(const char *text)
{
    return vt_jax_is_about_memory(text, strlen(text));
}

static void sizes(void **state)
{
    (void)state;
    assert_int_equal(bytes("Out of memory while trying to allocate 7406166528 bytes."), 7406166528);
    assert_int_equal(bytes("Out of memory while trying to allocate 4770354232 bytes.\nBufferAssignment OOM Debugging.\n"
                           "BufferAssignment stats:\n             parameter allocation:  372.76MiB\n"),
                     4770354232);
    assert_int_equal(bytes("Out of memory while trying to allocate 1.00GiB."), 1073741824);
    assert_int_equal(bytes("Out of host memory while trying to allocate 512 bytes. Please set"), 512);
    assert_int_equal(bytes("Failed to allocate request for 2.99GiB (3206250496B) on device ordinal 0"), 3206250496);
    assert_int_equal(bytes("Failed to allocate 1.50GiB (1610612737 bytes) of pinned host memory: out of memory"),
                     1610612737);
    assert_int_equal(bytes("Allocator (GPU_0_bfc) ran out of memory trying to allocate 32.00GiB (rounded to "
                           "34359738368)requested by op"),
                     34359738368);
    assert_int_equal(
        bytes("Failed to allocate a 4194304-byte pinned host staging buffer for a device-to-host transfer."), 4194304);
    assert_int_equal(bytes("failed to allocate 1.5KiB for it (3 times)"), 1536);
    assert_int_equal(bytes("Failed to allocate 12 bytes for new constant"), 12);
    assert_int_equal(bytes("allocate 256.0M"), 256 << 20);
    assert_int_equal(bytes("Out of memory allocating 4398046511104 bytes."), 4398046511104);
    assert_int_equal(bytes("could allocate nothing; while trying to allocate 77 bytes"), 77);
}

static void no_sizes(void **state)
{
    (void)state;
    assert_int_equal(bytes(""), 0);
    assert_int_equal(bytes("allocate "), 0);
    assert_int_equal(bytes("allocate"), 0);
    assert_int_equal(bytes("parameter allocation: 372.76MiB, allocated 5"), 0);
    assert_int_equal(bytes("Failed to allocate scratch memory for the CuDNN CTC Loss, whatever that is worth, 5 bytes"),
                     0);
    assert_int_equal(bytes("allocate 99999999999999999999999999999999 bytes"), 0);
    assert_int_equal(bytes("allocate 5"), 5);
    assert_int_equal(bytes("allocate 5."), 5);
    assert_int_equal(bytes("allocate 5.5"), 5);
    assert_int_equal(bytes("allocate 5GiB ("), 5ull << 30);
    assert_int_equal(bytes("allocate 5GiB (7"), 5ull << 30);
    assert_int_equal(bytes("allocate 5GiB (7 apples)"), 7);
    assert_int_equal(bytes("allocate 5GiB (x)"), 5ull << 30);
    assert_int_equal(vt_jax_requested_bytes(NULL, 0), 0);
}

/* Every prefix of every text, in memory of exactly its size: whoever reads on is caught by the sanitizers. */
static void cut_off(void **state)
{
    (void)state;
    static const char text[] = "Failed to allocate request for 2.99GiB (3206250496B) on device ordinal 0";
    for (size_t n = 0; n < sizeof text; n++) {
        char *copy = test_malloc(n + !n);
        memcpy(copy, text, n);
        uint64_t found = vt_jax_requested_bytes(copy, n);
        assert_true(found <= 3210498211u);
        vt_jax_is_about_memory(copy, n);
        test_free(copy);
    }
}

static void what_ran_out(void **state)
{
    (void)state;
    assert_true(memory("Out of memory while trying to allocate 7406166528 bytes."));
    assert_true(memory("Failed to allocate request for 2.99GiB (3206250496B) on device ordinal 0"));
    assert_true(memory("Underlying backend ran out of memory trying to instantiate command buffer with 3"));
    assert_false(memory("Shared memory size limit exceeded: requested 327680, available: 232448"));
    assert_false(memory("Received message larger than max (6000000 vs. 4194304)"));
    assert_false(memory(""));
    assert_false(vt_jax_is_about_memory(NULL, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sizes), cmocka_unit_test(no_sizes), cmocka_unit_test(cut_off),
                                       cmocka_unit_test(what_ran_out)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
