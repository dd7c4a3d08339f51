/* Reads /proc/self and the environment; see process.h. */
#include "preload/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/state.h"

#ifndef VT_VERSION
#define VT_VERSION "0.1.0"
#endif

/* Reads a whole small file; returns its length (0 on failure). */
static size_t read_file(const char *path, char *buffer, size_t size)
{
    int saved = errno;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    size_t n = 0;
    while (fd >= 0 && n < size) {
        long got = syscall(SYS_read, fd, buffer + n, size - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    if (fd >= 0)
        syscall(SYS_close, fd);
    errno = saved;
    return n;
}

static int32_t environment_number(const char *const names[])
{
    for (; *names; names++) {
        const char *v = getenv(*names);
        if (v && *v >= '0' && *v <= '9' && strlen(v) < 8)
            return (int32_t)atoi(v);
    }
    return -1;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

/* `python train.py` is the program train.py to its user; `python -m pkg.tool` is pkg.tool. */
static const char *program_of(const char *cmdline, size_t length)
{
    const char *arg = cmdline, *end = cmdline + length;
    const char *first = base_name(arg);
    if (strncmp(first, "python", 6))
        return first;
    for (arg += strlen(arg) + 1; arg < end; arg += strlen(arg) + 1) {
        if (arg[0] != '-')
            return base_name(arg);
        if (!strcmp(arg, "-m") && arg + 3 < end)
            return arg + 3;
        if (!strcmp(arg, "-c"))
            break;
        if (!strcmp(arg, "-W") || !strcmp(arg, "-X"))
            arg += strlen(arg) + 1;
    }
    return first;
}

void vt_process_read(struct vt_process *p)
{
    static char cmdline[4096]; /* with the state lock held; too large for somebody else's stack */
    memset(p, 0, sizeof *p);
    size_t n = read_file("/proc/self/cmdline", cmdline, sizeof cmdline - 1);
    cmdline[n] = 0;
    p->pid = (int32_t)getpid();
    snprintf(p->program, sizeof p->program, "%s", n ? program_of(cmdline, n) : "unknown");
    if (gethostname(p->host, sizeof p->host - 1) || !p->host[0])
        snprintf(p->host, sizeof p->host, "localhost");
    p->rank = environment_number((const char *const[]){"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", NULL});
    p->local_rank = environment_number(
        (const char *const[]){"LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", NULL});
    p->world_size = environment_number(
        (const char *const[]){"WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", NULL});
}

/* Field 22 of /proc/self/stat, counted behind the last ')': the program's name may contain anything. */
static uint64_t start_ticks(void)
{
    char stat[1024];
    size_t n = read_file("/proc/self/stat", stat, sizeof stat - 1);
    stat[n] = 0;
    char *p = strrchr(stat, ')');
    for (int field = 2; p && field < 22; field++)
        p = strchr(p + 1, ' ');
    return p ? strtoull(p + 1, NULL, 10) : 0;
}

/* The settings that decide how frameworks allocate, the mark by which `vramtrack run` knows its own recordings, and the ids by
 * which schedulers know a job's processes; other variables are nobody's business. */
static uint32_t allocator_settings(void)
{
    static const char *const wanted[] = {"PYTORCH_",
                                         "XLA_",
                                         "TF_",
                                         "CUDA_",
                                         "CUBLAS_",
                                         "NCCL_",
                                         "CUPY_",
                                         "RMM_",
                                         "JAX_",
                                         "NUMBA_CUDA_",
                                         "VRAMTRACK_RUN=",
                                         "VRAMTRACK_USER_PATHS=",
                                         "SLURM_JOB_ID=",
                                         "SLURM_STEP_ID=",
                                         "TORCHELASTIC_RUN_ID=",
                                         "PMIX_NAMESPACE=",
                                         NULL};
    static char text[16384];
    size_t n = 0;
    for (char **e = environ; e && *e; e++)
        for (int i = 0; wanted[i]; i++) {
            size_t length = strlen(*e) + 1;
            if (strncmp(*e, wanted[i], strlen(wanted[i])) || n + length > sizeof text)
                continue;
            memcpy(text + n, *e, length);
            n += length;
        }
    return n ? vt_writer_string(&vt_state.writer, text, n) : 0;
}

void vt_process_describe(struct vt_header *h, const struct vt_process *p)
{
    static char text[16384];
    h->local_rank = p->local_rank;
    h->world_size = p->world_size;
    h->process_start_ticks = start_ticks();
    ssize_t n = readlink("/proc/self/exe", text, sizeof text);
    h->exe = n > 0 ? vt_writer_string(&vt_state.writer, text, (size_t)n) : 0;
    size_t m = read_file("/proc/self/cmdline", text, sizeof text);
    h->cmdline = m ? vt_writer_string(&vt_state.writer, text, m) : 0;
    h->environment = allocator_settings();
    h->writer = vt_writer_string(&vt_state.writer, VT_VERSION, strlen(VT_VERSION));
}

void vt_process_name(uint32_t pid, char *name, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%u/comm", pid);
    size_t n = read_file(path, name, size - 1);
    if (n && name[n - 1] == '\n')
        n--;
    name[n] = 0;
}

bool vt_process_is_run(int pid)
{
    char comm[32];
    vt_process_name((uint32_t)pid, comm, sizeof comm);
    return !strncmp(comm, "vramtrack", 9);
}

/* A line of /proc/self/maps, without its end: "start-end rwxp offset device inode   name". */
static bool line_has(const char *line, uintptr_t address, struct vt_process_mapping *m)
{
    char rights[5] = "", *rest;
    unsigned long offset;
    int at = 0;
    m->start = strtoul(line, &rest, 16);
    m->end = *rest == '-' ? strtoul(rest + 1, &rest, 16) : 0;
    if (address < m->start || address >= m->end || sscanf(rest, " %4s %lx %*s %*s %n", rights, &offset, &at) < 2)
        return false;
    m->offset = offset;
    m->executable = rights[2] == 'x';
    snprintf(m->name, sizeof m->name, "%s", at ? rest + at : "");
    return true;
}

enum vt_process_found vt_process_mapping_at(uintptr_t address, struct vt_process_mapping *m)
{
    static char buffer[8192];
    size_t kept = 0;
    bool found = false;
    long got = -1;
    int saved = errno, fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && !found && (got = syscall(SYS_read, fd, buffer + kept, sizeof buffer - 1 - kept)) > 0) {
        buffer[kept + (size_t)got] = 0;
        char *line = buffer, *newline;
        for (; !found && (newline = strchr(line, '\n')); line = newline + 1) {
            *newline = 0;
            found = line_has(line, address, m);
        }
        kept = strlen(line);
        memmove(buffer, line, kept);
        if (kept == sizeof buffer - 1) /* a line of 8 KiB: no path that we could use */
            kept = 0;
    }
    if (fd >= 0)
        syscall(SYS_close, fd);
    errno = saved;
    return found ? VT_MAPPING_THERE : got < 0 ? VT_MAPPING_UNKNOWN : VT_MAPPING_NONE;
}

bool vt_process_mapped_file(uintptr_t address, char *path, size_t size)
{
    static struct vt_process_mapping m;
    if (vt_process_mapping_at(address, &m) != VT_MAPPING_THERE || m.name[0] != '/')
        return false;
    snprintf(path, size, "%s", m.name);
    return true;
}

void vt_process_thread_name(char *name, size_t size)
{
    char comm[17] = "";
    prctl(PR_GET_NAME, comm, 0, 0, 0);
    snprintf(name, size, "%s", comm);
}
