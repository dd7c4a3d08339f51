/*
 * How the recorded process ended. The file of a process that was killed says "running" for ever, so /proc decides:
 * the process lives if its pid is there with the same start time and it is no zombie.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "analysis/model.h"

/* Reads /proc/PID/stat; returns the text after the program's name, or NULL. */
static const char *stat_fields(int32_t pid, char *buffer, size_t bytes)
{
    char path[32], *end;
    ssize_t got;
    int fd;

    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    if ((fd = open(path, O_RDONLY | O_CLOEXEC)) < 0)
        return NULL;
    got = read(fd, buffer, bytes - 1);
    close(fd);
    if (got <= 0)
        return NULL;
    buffer[got] = '\0';
    end = strrchr(buffer, ')'); /* the name may hold spaces and parentheses */
    return end && end[1] == ' ' ? end + 2 : NULL;
}

/* Is the process with this start time alive? fields: "S ppid ..."; the start time is field 22, the state is field 3. */
static bool is_alive(const char *fields, uint64_t start_ticks)
{
    int field;

    if (*fields == 'Z' || *fields == 'X')
        return false;
    for (field = 3; field < 22; field++) {
        if (!(fields = strchr(fields, ' ')))
            return false;
        fields++;
    }
    return strtoull(fields, NULL, 10) == start_ticks;
}

bool vt_model_process_lives(int32_t pid, uint64_t start_ticks)
{
    char buffer[1024];
    const char *fields = pid > 0 ? stat_fields(pid, buffer, sizeof buffer) : NULL;

    return fields && is_alive(fields, start_ticks);
}

enum vt_process_end vt_model_process_end(const struct vt_header *header)
{
    if (header->end == VT_END_EXIT || header->end == VT_END_EXEC)
        return VT_PROCESS_EXIT;
    return vt_model_process_lives(header->pid, header->process_start_ticks) ? VT_PROCESS_RUNNING : VT_PROCESS_KILLED;
}

const char *vt_model_end_words(char *buffer, const struct vt_model *m, bool status_known, int status)
{
    const struct vt_header *h = vt_reading_header(m->reading);
    const char *signal;

    if (m->end == VT_PROCESS_RUNNING)
        snprintf(buffer, VT_END_WORDS, "still running");
    else if (h->end == VT_END_EXEC)
        snprintf(buffer, VT_END_WORDS, "replaced itself by another program");
    else if (m->end == VT_PROCESS_EXIT)
        snprintf(buffer, VT_END_WORDS, "exit status %d", h->exit_code);
    else if (status_known && WIFEXITED(status)) /* it ended without the C library */
        snprintf(buffer, VT_END_WORDS, "exit status %d", WEXITSTATUS(status));
    else if (status_known && WIFSIGNALED(status) && (signal = sigdescr_np(WTERMSIG(status))))
        snprintf(buffer, VT_END_WORDS, "ended by signal %d (%s)", WTERMSIG(status), signal);
    else if (status_known && WIFSIGNALED(status))
        snprintf(buffer, VT_END_WORDS, "ended by signal %d", WTERMSIG(status));
    else
        snprintf(buffer, VT_END_WORDS, "was killed or crashed");
    return buffer;
}
