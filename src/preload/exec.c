/*
 * exec*: the recording ends where the program is replaced. It is marked before the call and unmarked if that fails.
 *
 * These run in the children of vfork and fork as well, where nothing may be touched and only async-signal-safe work is
 * allowed: the real functions are found when the library is loaded, and the pid tells whose recording it is.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include "preload/process_hooks.h"
#include "preload/resolve.h"

#include <dlfcn.h>

static int (*real_execve)(const char *, char *const[], char *const[]);
static int (*real_execv)(const char *, char *const[]);
static int (*real_execvp)(const char *, char *const[]);
static int (*real_execvpe)(const char *, char *const[], char *const[]);
static int (*real_fexecve)(int, char *const[], char *const[]);
static int (*real_execveat)(int, const char *, char *const[], char *const[], int);

__attribute__((constructor)) static void find_real(void)
{
    real_execve = (__typeof__(real_execve))vt_real_dlsym(RTLD_NEXT, "execve");
    real_execv = (__typeof__(real_execv))vt_real_dlsym(RTLD_NEXT, "execv");
    real_execvp = (__typeof__(real_execvp))vt_real_dlsym(RTLD_NEXT, "execvp");
    real_execvpe = (__typeof__(real_execvpe))vt_real_dlsym(RTLD_NEXT, "execvpe");
    real_fexecve = (__typeof__(real_fexecve))vt_real_dlsym(RTLD_NEXT, "fexecve");
    real_execveat = (__typeof__(real_execveat))vt_real_dlsym(RTLD_NEXT, "execveat");
}

#define EXEC_WRAPPER(name, parameters, arguments)                           \
    VT_EXPORT int name parameters                                           \
    {                                                                       \
        bool marked = vt_process_before_exec();                             \
        int r = real_##name ? real_##name arguments : (errno = ENOSYS, -1); \
        if (marked)                                                         \
            vt_process_exec_failed();                                       \
        return r;                                                           \
    }

EXEC_WRAPPER(execve, (const char *path, char *const argv[], char *const envp[]), (path, argv, envp))
EXEC_WRAPPER(execv, (const char *path, char *const argv[]), (path, argv))
EXEC_WRAPPER(execvp, (const char *file, char *const argv[]), (file, argv))
EXEC_WRAPPER(execvpe, (const char *file, char *const argv[], char *const envp[]), (file, argv, envp))
EXEC_WRAPPER(fexecve, (int fd, char *const argv[], char *const envp[]), (fd, argv, envp))
EXEC_WRAPPER(execveat, (int dir, const char *path, char *const argv[], char *const envp[], int flags),
             (dir, path, argv, envp, flags))

/* The headers promise that the first argument is there; callers do not. */
static const char *maybe_null(const char *arg)
{
    __asm__("" : "+r"(arg));
    return arg;
}

/* The variadic forms: the list becomes an array on the stack, as libc does it. */
#define LIST_WRAPPER(name, target, first, tail, call)                            \
    VT_EXPORT int name(const char *first, const char *arg, ...)                  \
    {                                                                            \
        va_list list;                                                            \
        size_t n = 0;                                                            \
        va_start(list, arg);                                                     \
        for (const char *a = maybe_null(arg); a; a = va_arg(list, const char *)) \
            n++;                                                                 \
        va_end(list);                                                            \
        char *argv[n + 1];                                                       \
        argv[0] = (char *)arg;                                                   \
        va_start(list, arg);                                                     \
        for (size_t i = 1; i <= n; i++)                                          \
            argv[i] = va_arg(list, char *);                                      \
        tail va_end(list);                                                       \
        return target call;                                                      \
    }

LIST_WRAPPER(execl, execv, path, , (path, argv))
LIST_WRAPPER(execlp, execvp, file, , (file, argv))
LIST_WRAPPER(execle, execve, path, char *const *envp = va_arg(list, char *const *);, (path, argv, envp))
