/* Which interpreters are read, and what is said of the others: the lookup answers as one of them would. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "preload/python/interpreter.h"
#include "preload/resolve.h"

static struct {
    bool there, complete;
    unsigned long hex;
    const char *text;
    uint64_t runtime[128], types[64];
} fake;

static void *nothing(void)
{
    return NULL;
}

static const char *version_text(void)
{
    return fake.text;
}

static int is_finalizing(void)
{
    return 1;
}

void *vt_real_dlsym(void *handle, const char *name)
{
    if (handle != RTLD_DEFAULT || !fake.there)
        return NULL;
    if (strcmp(name, "PyGILState_GetThisThreadState") == 0)
        return (void *)nothing;
    if (strcmp(name, "Py_Version") == 0)
        return fake.hex ? &fake.hex : NULL;
    if (strcmp(name, "Py_GetVersion") == 0)
        return (void *)version_text;
    if (strcmp(name, "_PyRuntime") == 0)
        return fake.runtime;
    if (strcmp(name, "_Py_IsFinalizing") == 0)
        return (void *)is_finalizing;
    if (strcmp(name, "PyInterpreterState_Main") == 0)
        return fake.complete ? (void *)nothing : NULL;
    return strncmp(name, "Py", 2) == 0 && strstr(name, "_Type") ? fake.types : NULL;
}

/* Looks as a fresh process would. */
static const char *status_of(unsigned long hex, const char *text, bool complete)
{
    fake.there = true;
    fake.hex = hex, fake.text = text, fake.complete = complete;
    vt_py_current = NULL;
    vt_python_prepare();
    return vt_python_status();
}

static void refusals(void **state)
{
    (void)state;
    assert_string_equal(status_of(0x031000f0, NULL, true),
                        "CPython 3.16.0 is newer than this version of vramtrack knows");
    assert_false(vt_py_readable(vt_py()));
    assert_true(vt_python_finalizing()); /* that much is known of any */
    assert_string_equal(status_of(0x030c00c1, NULL, true),
                        "CPython 3.12.0 is not a final release: its frames are not read");
    assert_string_equal(status_of(0, "3.6.15 (default, Jan  1 2030)", false),
                        "CPython 3.6.15 is older than what vramtrack reads (3.8)");
    assert_string_equal(status_of(0, "3.10.0rc2 (default)", true),
                        "CPython 3.10.0 is not a final release: its frames are not read");
    assert_string_equal(status_of(0x030c01f0, NULL, false),
                        "CPython 3.12.1 lacks functions that version should have: its frames are not read");
}

static void refusals_by_data(void **state)
{
    (void)state;
    assert_string_equal(status_of(0x030d00f0, NULL, true),
                        "CPython 3.13.0 does not describe itself as that version should: its frames are not read");
    memcpy(fake.runtime, "xdebugpy", 8);
    fake.runtime[1] = 0x030d00f0;
    assert_string_equal(status_of(0x030d00f0, NULL, true),
                        "CPython 3.13.0 has other offsets than that version should: its frames are not read");
}

static void objects_of_another_layout(void **state)
{
    (void)state;
    assert_string_equal(status_of(0, "3.9.2+ (default)", true),
                        "CPython 3.9.2 has objects of an unknown layout: its frames are not read");
}

static void none(void **state)
{
    (void)state;
    vt_python_prepare(); /* before any library was loaded, as far as the fake is concerned */
    assert_string_equal(vt_python_status(), "no Python in this process");
    assert_false(vt_python_finalizing());
    assert_null(vt_py());
}

int main(void)
{
    const struct CMUnitTest first[] = {cmocka_unit_test(refusals)},
                            second[] = {cmocka_unit_test(refusals_by_data),
                                        cmocka_unit_test(objects_of_another_layout)};
    const struct CMUnitTest nothing_there[] = {cmocka_unit_test(none)};
    /* a search that found nothing is not repeated until a library is loaded: so it is the last */
    int failed = cmocka_run_group_tests(first, NULL, NULL) + cmocka_run_group_tests(second, NULL, NULL);
    fake.there = false;
    vt_py_current = NULL;
    return failed + cmocka_run_group_tests(nothing_there, NULL, NULL);
}
