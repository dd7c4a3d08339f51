/*
 * Ends and children of processes, for test_regressions_books.py: `regr_process SCENE`. Every process that uses CUDA allocates an
 * amount by which its recording is recognised: the first one 1 MiB, a child 2 MiB, a second image 4 MiB.
 */
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>

#include "regr.h"

extern char **environ;

NOINLINE static void grab(size_t n)
{
    CUcontext c;
    CUdeviceptr p;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&c, 0));
    OK(cuCtxSetCurrent(c));
    OK(cuMemAlloc_v2(&p, n));
}

static int status_of(pid_t pid)
{
    int status;
    MUST(waitpid(pid, &status, 0) == pid);
    return status;
}

static void *exit_from_thread(void *unused)
{
    (void)unused;
    exit(12);
}

static void *returns(void *unused)
{
    return unused;
}

int main(int argc, char **argv)
{
    const char *scene = argc > 1 ? argv[1] : "";
    char *self[] = {argv[0], "second", NULL};
    pthread_t t;
    pid_t pid;
#define IF(name) if (!strcmp(scene, name))
    IF("second")
    {
        grab(4 * MIB);
        return 4;
    }
    IF("no_cuda") return 5;
    grab(1 * MIB);
    IF("return") return 6;
    IF("exit") exit(7);
    IF("_exit") _exit(8);
    IF("_Exit") _Exit(9);
    IF("quick_exit") quick_exit(10);
    IF("abort") abort();
    IF("sigterm") raise(SIGTERM);
    IF("sigkill") raise(SIGKILL);
    IF("exit_from_thread")
    {
        pthread_create(&t, NULL, exit_from_thread, NULL);
        pthread_join(t, NULL);
    }
    IF("pthread_exit")
    {
        pthread_create(&t, NULL, returns, NULL);
        pthread_exit(NULL);
    }
    IF("exec")
    {
        execv(argv[0], self);
        _exit(99);
    }
    IF("exec_fails")
    {
        MUST(execv("/no/such/file", self) == -1 && errno == ENOENT);
        grab(2 * MIB);
        return 11;
    }
    IF("fork")
    { /* the child has no CUDA */
        if (!(pid = fork()))
            _exit(3);
        MUST(status_of(pid) == 3 << 8);
        grab(2 * MIB);
        return 13;
    }
    IF("fork_exit")
    { /* the child runs the handlers that it inherited */
        if (!(pid = fork()))
            exit(3);
        MUST(status_of(pid) == 3 << 8);
        grab(2 * MIB);
        return 14;
    }
    IF("fork_cuda")
    {
        if (!(pid = fork())) {
            grab(2 * MIB);
            exit(3);
        }
        MUST(status_of(pid) == 3 << 8);
        return 15;
    }
    IF("fork_cuda_killed")
    {
        if (!(pid = fork())) {
            grab(2 * MIB);
            raise(SIGKILL);
        }
        MUST(status_of(pid) == SIGKILL);
        return 16;
    }
    IF("fork_exec")
    {
        if (!(pid = fork())) {
            execv(argv[0], self);
            _exit(99);
        }
        MUST(status_of(pid) == 4 << 8);
        return 17;
    }
    IF("spawn")
    {
        MUST(!posix_spawn(&pid, argv[0], NULL, NULL, self, environ));
        MUST(status_of(pid) == 4 << 8);
        return 18;
    }
    IF("vfork")
    {
        if (!(pid = vfork()))
            _exit(3);
        MUST(status_of(pid) == 3 << 8);
        grab(2 * MIB);
        return 19;
    }
    IF("vfork_exec_fails")
    {
        if (!(pid = vfork())) {
            execv("/no/such/file", self);
            _exit(3);
        }
        MUST(status_of(pid) == 3 << 8);
        grab(2 * MIB);
        return 20;
    }
    IF("daemon")
    { /* the first process goes, the second goes on; its end is announced on file descriptor 3 */
        if ((pid = fork()))
            _exit(21);
        setsid();
        grab(2 * MIB);
        exit(22);
    }
    return 64;
}
