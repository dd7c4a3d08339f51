/*
 * Suppressions: which names a pattern fits, what is said of bad lines, and that what is suppressed is no finding but is
 * counted.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "analysis/suppress.h"
#include "test_tensor_fixture.h"

static void test_patterns(void **state)
{
    static const struct {
        const char *pattern, *name;
        bool fits;
    } cases[] = {
        {"load", "load_weights", true},
        {"load", "preload", true}, /* anywhere */
        {"^load", "preload", false},
        {"^load", "load_weights", true},
        {"load$", "preload", true},
        {"load$", "loads", false},
        {"^load$", "load", true},
        {"l*d", "load", true},
        {"lib*.so", "/opt/vendor/libvendor.so.3", true},
        {"lib*.so$", "/opt/vendor/libvendor.so.3", false},
        {"^a*b*c$", "aXbXbYc", true},
        {"^a*b*c$", "aXbXbYcd", false},
        {"a*", "a", true},
        {"*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false},
        {"x", "", false},
        {"x", NULL, false},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (vt_suppressions_fits(cases[i].pattern, cases[i].name) != cases[i].fits)
            fail_msg("%s and %s", cases[i].pattern, cases[i].name);
}

static char path[] = "/tmp/vt-suppress-XXXXXX";
static char said[4][512];
static unsigned sentences;

static void keep_sentence(void *context, const char *sentence)
{
    (void)context;
    if (sentences < 4)
        snprintf(said[sentences], sizeof said[0], "%s", sentence);
    sentences++;
}

static void write_file(const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void test_file(void **state)
{
    struct vt_suppressions s;

    (void)state;
    sentences = 0;
    write_file("# a comment\n\n  leak:load_weights  \r\nrace:other\nleak:\nleak: lib*.so\nleak:*");
    assert_int_equal(vt_suppressions_load(&s, path, keep_sentence, NULL), 0);
    assert_int_equal(s.count, 2);
    assert_string_equal(s.patterns[0], "load_weights");
    assert_string_equal(s.patterns[1], "lib*.so");
    assert_int_equal(sentences, 3);
    assert_non_null(strstr(said[0], ":4 is not understood (leak:PATTERN is): race:other"));
    assert_non_null(strstr(said[1], ":5 is not understood"));
    assert_non_null(strstr(said[2], ":7 is not understood"));
    vt_suppressions_free(&s);
    sentences = 0;
    assert_int_equal(vt_suppressions_load(&s, "/nowhere/at/all", keep_sentence, NULL), 0);
    assert_int_equal(sentences, 1);
    assert_non_null(strstr(said[0], "/nowhere/at/all can't be read (No such file or directory)"));
    assert_int_equal(vt_suppressions_load(&s, "/dev/zero", keep_sentence, NULL), 0); /* does not end */
    assert_int_equal(sentences, 2);
    assert_int_equal(vt_suppressions_load(&s, NULL, keep_sentence, NULL), 0);
    assert_int_equal(s.count, 0);
    assert_int_equal(sentences, 2);
}

static bool has_note(const struct opened *o, const char *text)
{
    uint32_t i;

    for (i = 0; i < o->a.model.note_count; i++)
        if (strstr(o->a.model.notes[i], text))
            return true;
    return false;
}

/* A leak of driver memory in a module, and tensors that grow in a Python function. */
static void test_findings(void **state)
{
    struct opened o;
    struct tensors t;
    uint32_t leak, list, i;

    (void)state;
    tensors_begin(&t);
    leak = place(&t, t.driver, fixture_frame(&t.f, fixture_frame(&t.f, 0, t.app, 0x700), t.ours, 0x77), 0);
    list = tensor_place(&t, "keep_all", 5);
    for (i = 0; i < 16; i++) {
        hold(&t, leak, BASE + GIB + i * MIB, MIB);
        hold(&t, list, BASE + i * MIB, MIB);
        step_ends(&t);
    }
    t.now = 0;
    open_at(&o, &t.f, NULL);
    assert_non_null(find(&o, VT_FAMILY_LEAK, VT_LIKELY));
    assert_non_null(find(&o, VT_FAMILY_GROWTH, VT_LIKELY));
    close_it(&o);

    setenv("VRAMTRACK_SUPPRESSIONS", path, 1);
    write_file("leak:^keep_all$\n");
    open_at(&o, &t.f, NULL);
    assert_non_null(find(&o, VT_FAMILY_LEAK, VT_LIKELY));
    assert_false(has_family(&o, VT_FAMILY_GROWTH));
    assert_true(has_note(&o,
                         "1 place with 16.00 MiB would be called a leak or growth, but VRAMTRACK_SUPPRESSIONS names "
                         "it."));
    close_it(&o);

    write_file("leak:train.py\nleak:/nowhere/demo\nnonsense\n");
    open_at(&o, &t.f, NULL);
    assert_false(has_family(&o, VT_FAMILY_LEAK));
    assert_false(has_family(&o, VT_FAMILY_GROWTH));
    assert_true(has_note(&o, "2 places with 32.00 MiB"));
    assert_true(has_note(&o, ":3 is not understood"));
    assert_int_equal(vt_model_site(&o.a.model, leak)->live_bytes, 16 * MIB); /* shown as any other */
    close_it(&o);
    unsetenv("VRAMTRACK_SUPPRESSIONS");
    tensors_end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_findings),
    };
    int failed, fd = mkstemp(path);

    if (fd < 0)
        return 1;
    close(fd);
    unsetenv("VRAMTRACK_SUPPRESSIONS");
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
