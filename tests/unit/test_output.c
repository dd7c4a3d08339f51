/*
 * The file that -o or --html names (src/cli/output.c): whole or not there, whatever ends the program that writes it.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/output.h"

static char directory[64], target[96], said[256];

/* Instead of the command's, which writes to standard error. */
int vt_fail(const char *verb, const char *format, ...)
{
    va_list arguments;

    (void)verb;
    va_start(arguments, format);
    vsnprintf(said, sizeof said, format, arguments);
    va_end(arguments);
    return VT_EXIT_ERROR;
}

static int set_up(void **state)
{
    (void)state;
    snprintf(directory, sizeof directory, "/tmp/vt-output-XXXXXX");
    if (!mkdtemp(directory))
        return -1;
    snprintf(target, sizeof target, "%s/file", directory);
    *said = 0;
    return 0;
}

/* Removes the files of the directory. Returns how many there were. */
static int clear(void)
{
    DIR *d = opendir(directory);
    const struct dirent *e;
    int count = 0;

    while ((e = readdir(d)))
        if (*e->d_name != '.') {
            unlinkat(dirfd(d), e->d_name, 0);
            count++;
        }
    closedir(d);
    return count;
}

static int tear_down(void **state)
{
    (void)state;
    clear();
    return rmdir(directory);
}

static void put(const char *text)
{
    FILE *f = fopen(target, "w");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void check_content(const char *wanted)
{
    char text[64] = "";
    FILE *f = fopen(target, "r");

    assert_non_null(f);
    assert_non_null(fgets(text, sizeof text, f));
    fclose(f);
    assert_string_equal(text, wanted);
}

/* Half of the file, then the signal; what ignores it goes on. */
static int write_and_raise(int fd, void *context)
{
    if (write(fd, "ne", 2) != 2)
        return VT_EXIT_ERROR;
    if (context)
        raise(*(int *)context);
    return write(fd, "w", 1) == 1 ? VT_EXIT_OK : VT_EXIT_ERROR;
}

static int write_and_fail(int fd, void *context)
{
    (void)context;
    return write(fd, "ne", 2) == 2 ? VT_EXIT_ERROR : VT_EXIT_OK;
}

/* The status of a process that writes the target and gets a signal meanwhile. */
static int ended_by(int number, bool ignored, bool force)
{
    const struct vt_output output = {.verb = "test", .path = target, .force = force};
    int status = -1;
    pid_t child = fork();

    if (!child) {
        const struct rlimit none = {0, 0};

        setrlimit(RLIMIT_CORE, &none);
        signal(number, ignored ? SIG_IGN : SIG_DFL);
        _exit(vt_output_write(&output, write_and_raise, &number));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void test_signals(void **state)
{
    static const int all[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGXFSZ, SIGXCPU, SIGPIPE};
    int status;

    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        status = ended_by(all[i], false, false);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), all[i]);
        assert_int_equal(clear(), 0);
        put("mine");
        status = ended_by(all[i], false, true);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), all[i]);
        check_content("mine");
        assert_int_equal(clear(), 1);
        status = ended_by(all[i], true, false); /* as under nohup */
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), VT_EXIT_OK);
        check_content("new");
        assert_int_equal(clear(), 1);
    }
}

static void test_leaves_signals_as_they_were(void **state)
{
    const struct vt_output output = {.verb = "test", .path = target};
    struct sigaction action;
    sigset_t blocked;

    (void)state;
    assert_int_equal(vt_output_write(&output, write_and_raise, NULL), VT_EXIT_OK);
    check_content("new");
    sigaction(SIGINT, NULL, &action);
    assert_ptr_equal(action.sa_handler, SIG_DFL);
    sigprocmask(SIG_BLOCK, NULL, &blocked);
    assert_int_equal(sigismember(&blocked, SIGINT), 0);
}

static void test_failures(void **state)
{
    struct vt_output output = {.verb = "test", .path = target};
    char line[160];

    (void)state;
    assert_int_equal(vt_output_write(&output, write_and_fail, NULL), VT_EXIT_ERROR);
    assert_int_equal(clear(), 0);
    put("mine");
    assert_int_equal(vt_output_write(&output, write_and_raise, NULL), VT_EXIT_ERROR);
    snprintf(line, sizeof line, "%s is there already (--force replaces it)", target);
    assert_string_equal(said, line);
    output.force = true;
    assert_int_equal(vt_output_write(&output, write_and_fail, NULL), VT_EXIT_ERROR);
    check_content("mine");
    assert_int_equal(clear(), 1);
    assert_int_equal(symlink("nothing", target), 0);
    assert_int_equal(vt_output_write(&output, write_and_raise, NULL), VT_EXIT_ERROR);
    snprintf(line, sizeof line, "%s is a link to a file that is not there", target);
    assert_string_equal(said, line);
    assert_int_equal(clear(), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_signals, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_leaves_signals_as_they_were, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_failures, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
