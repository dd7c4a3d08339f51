/*
 * Writing a file of the user's. Nothing is lost: see output.h.
 */
#include "cli/output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"

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

/* Writes into a file beside `path`, then renames it. */
static int write_beside(const struct vt_output *output, const char *path, int (*write)(int, void *), void *context)
{
    mode_t mask = umask(0);
    char *beside;
    int fd, status, error;

    umask(mask);
    if (asprintf(&beside, "%s.XXXXXX", path) < 0)
        return vt_fail(output->verb, "out of memory");
    if ((fd = mkostemp(beside, O_CLOEXEC)) < 0) {
        status = vt_fail(output->verb, "%s: %s", output->path, strerror(errno));
        free(beside);
        return status;
    }
    status = write(fd, context);
    fchmod(fd, 0666 & ~mask); /* of a temporary file: its owner alone, and a collector is somebody else */
    if (close(fd) && status == VT_EXIT_OK)
        status = vt_fail(output->verb, "cannot write: %s", strerror(errno));
    if (status == VT_EXIT_OK && (error = put_in_place(beside, path, output->force)))
        status = vt_fail(output->verb, "%s: %s", output->path, strerror(error));
    if (status != VT_EXIT_OK)
        unlink(beside);
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
        return vt_fail(output->verb, "%s: %s", output->path, strerror(errno));
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
