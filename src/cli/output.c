/*
 * Writing a file of the user's. Nothing is lost: see output.h.
 */
#include "cli/output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"

/* What ends a program while it writes: the user, the terminal, a limit of the shell, a reader of ours who left. */
static const int endings[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGXFSZ, SIGXCPU, SIGPIPE};
#define ENDINGS (sizeof endings / sizeof *endings)

static const char *unfinished; /* changes only while these signals are held back */
static struct sigaction former[ENDINGS];

/* No half file stays behind; the program then ends as if nobody had caught the signal. */
static void on_ending(int number)
{
    const struct sigaction plain = {.sa_handler = SIG_DFL};

    if (unfinished)
        unlink(unfinished);
    sigaction(number, &plain, NULL);
    raise(number);
}

/* Returns the signals that were held back before. */
static sigset_t hold_endings(void)
{
    sigset_t those, before;

    sigemptyset(&those);
    for (size_t i = 0; i < ENDINGS; i++)
        sigaddset(&those, endings[i]);
    sigprocmask(SIG_BLOCK, &those, &before);
    return before;
}

/* From here on an ending removes `path`, until NULL. What is ignored (nohup) or caught by somebody stays so. */
static void set_unfinished(const char *path)
{
    const struct sigaction ours = {.sa_handler = on_ending};

    for (size_t i = 0; i < ENDINGS; i++)
        if (!path)
            sigaction(endings[i], &former[i], NULL);
        else if (!sigaction(endings[i], NULL, &former[i]) && former[i].sa_handler == SIG_DFL)
            sigaction(endings[i], &ours, NULL);
    unfinished = path;
}

/* Makes the file that is written to. Returns a descriptor, or -1 with errno. */
static int make_unfinished(char *template)
{
    sigset_t before = hold_endings();
    int fd = mkostemp(template, O_CLOEXEC), error = errno;

    if (fd >= 0)
        set_unfinished(template);
    sigprocmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return fd;
}

/* Gives the complete file its name. Returns 0 or an errno. */
static int put_in_place(const char *from, const char *to, bool force)
{
    if (force)
        return rename(from, to) ? errno : 0;
    if (!renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE))
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return errno;
    return link(from, to) || unlink(from) ? errno : 0; /* a file system that cannot do it in one call */
}

/* The complete file goes to its place, any other away. Returns 0 or an errno. */
static int finish(const char *from, const char *to, bool complete, bool force)
{
    sigset_t before = hold_endings();
    int error = complete ? put_in_place(from, to, force) : 0;

    if (!complete || error)
        unlink(from);
    set_unfinished(NULL);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* Writes into a file beside `path`, then renames it. */
static int write_beside(const struct vt_output *output, const char *path, int (*write)(int, void *), void *context)
{
    mode_t mask = umask(0);
    char *beside;
    int fd, status, error;

    umask(mask);
    if (asprintf(&beside, "%s.XXXXXX", path) < 0)
        return vt_fail(output->verb, "out of memory");
    if ((fd = make_unfinished(beside)) < 0) {
        status = vt_fail(output->verb, "%s: %s", output->path, strerror(errno));
        free(beside);
        return status;
    }
    status = write(fd, context);
    fchmod(fd, 0666 & ~mask); /* of a temporary file: its owner alone, and a collector is somebody else */
    if (close(fd) && status == VT_EXIT_OK)
        status = vt_fail(output->verb, "cannot write: %s", strerror(errno));
    if ((error = finish(beside, path, status == VT_EXIT_OK, output->force)))
        status = vt_fail(output->verb, "%s: %s", output->path, strerror(error));
    free(beside);
    return status;
}

/* A pipe or a device: nothing to replace. */
static int write_into(const struct vt_output *output, int (*write)(int, void *), void *context)
{
    int fd = open(output->path, O_WRONLY | O_CLOEXEC), status;

    if (fd < 0)
        return vt_fail(output->verb, "%s: %s", output->path, strerror(errno));
    status = write(fd, context);
    return close(fd) && status == VT_EXIT_OK ? vt_fail(output->verb, "cannot write: %s", strerror(errno)) : status;
}

/* --force must not destroy what is read. */
static bool is_input(const struct vt_output *output, const struct stat *there)
{
    struct stat input;

    return output->input && !stat(output->input, &input) && input.st_dev == there->st_dev &&
           input.st_ino == there->st_ino;
}

int vt_output_write(const struct vt_output *output, int (*write)(int fd, void *context), void *context)
{
    struct stat there;
    char *target;
    int status;

    if (!output->path)
        return write(STDOUT_FILENO, context);
    if (lstat(output->path, &there))
        return write_beside(output, output->path, write, context);
    if (stat(output->path, &there))
        return errno == ENOENT ? vt_fail(output->verb, "%s is a link to a file that is not there", output->path)
                               : vt_fail(output->verb, "%s: %s", output->path, strerror(errno));
    if (is_input(output, &there))
        return vt_fail(output->verb, "%s is the recording itself", output->path);
    if (S_ISDIR(there.st_mode))
        return vt_fail(output->verb, "%s: %s", output->path, strerror(EISDIR));
    if (!S_ISREG(there.st_mode))
        return write_into(output, write, context);
    if (!output->force)
        return vt_fail(output->verb, "%s is there already (--force replaces it)", output->path);
    if (!(target = realpath(output->path, NULL))) /* what a link leads to is replaced, not the link */
        return vt_fail(output->verb, "%s: %s", output->path, strerror(errno));
    status = write_beside(output, target, write, context);
    free(target);
    return status;
}
