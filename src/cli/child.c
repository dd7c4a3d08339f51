/*
 * Starting, waiting and ending like the child.
 *
 * The program stays in our process group, so what the terminal sends (Ctrl-C, Ctrl-Z) reaches it without us. All signals
 * that we pass on are blocked and taken with sigwaitinfo: no handler is installed, and what the program inherits (mask and
 * dispositions, an ignored SIGHUP under nohup for instance) is what we inherited.
 */
#include "cli/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"

#define NOTICE_AFTER_S 2 /* of waiting for orphans in silence */
#define GRACE_S 5        /* for orphans, when we were told to end */
#define MAX_CHILDREN 4096

static const int passed_on[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

static sigset_t waited_for; /* passed_on and SIGCHLD */
static sigset_t original_mask;
static struct sigaction original_sigchld;

/* Pids of our children, by the kernel's list. Returns their number; 0 where there is no such list. */
static int list_children(pid_t *list, int room)
{
    char path[64];
    int count = 0;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/self/task/%d/children", getpid());
    file = fopen(path, "re");
    if (!file)
        return 0;
    while (count < room && fscanf(file, "%d", &list[count]) == 1)
        count++;
    fclose(file);
    return count;
}

/* After `exec vramtrack run` the shell's background jobs are our children. They are none of our business. */
static void remember_inherited(struct vt_child *child)
{
    child->inherited = calloc(MAX_CHILDREN, sizeof(pid_t));
    if (child->inherited)
        child->inherited_count = list_children(child->inherited, MAX_CHILDREN);
}

static bool is_inherited(const struct vt_child *child, pid_t pid)
{
    for (int i = 0; i < child->inherited_count; i++)
        if (child->inherited[i] == pid)
            return true;
    return false;
}

static void take_signals(void)
{
    struct sigaction standard = {.sa_handler = SIG_DFL};

    sigemptyset(&waited_for);
    sigaddset(&waited_for, SIGCHLD);
    for (size_t i = 0; i < sizeof(passed_on) / sizeof(passed_on[0]); i++)
        sigaddset(&waited_for, passed_on[i]);
    sigprocmask(SIG_BLOCK, &waited_for, &original_mask);
    sigaction(SIGCHLD, &standard, &original_sigchld); /* if it is ignored, there is no status to wait for */
}

static _Noreturn void become_program(char **argv, int report)
{
    int error;

    sigaction(SIGCHLD, &original_sigchld, NULL);
    sigprocmask(SIG_SETMASK, &original_mask, NULL);
    execvp(argv[0], argv);
    error = errno;
    if (write(report, &error, sizeof(error)) != sizeof(error))
        error = ENOEXEC;
    _exit(error == ENOENT ? 127 : 126);
}

int vt_child_start(struct vt_child *child, char **argv, bool adopt)
{
    int channel[2], error = 0;

    memset(child, 0, sizeof(*child));
    if (pipe2(channel, O_CLOEXEC))
        return errno;
    remember_inherited(child);
    take_signals();
    if (adopt)
        prctl(PR_SET_CHILD_SUBREAPER, 1);

    child->pid = fork();
    if (child->pid < 0)
        error = errno;
    else if (child->pid == 0)
        become_program(argv, channel[1]);
    close(channel[1]);

    /* The write end closes by itself when the exec succeeds. */
    if (!error && read(channel[0], &error, sizeof(error)) == sizeof(error))
        waitpid(child->pid, NULL, 0);
    close(channel[0]);
    signal(SIGPIPE, SIG_IGN); /* whoever closed our standard error must not change the exit status */
    return error;
}

static void note_end(struct vt_child *child, pid_t pid, int status)
{
    if (!child->ended)
        child->ended = calloc(MAX_CHILDREN, sizeof(*child->ended));
    if (child->ended)
        child->ended[child->ended_count++ % MAX_CHILDREN] = (struct vt_ended){pid, status}; /* the newest ones */
}

bool vt_child_status(const struct vt_child *child, pid_t pid, int *status)
{
    for (int i = child->ended_count, last = i > MAX_CHILDREN ? i - MAX_CHILDREN : 0; i-- > last;)
        if (child->ended[i % MAX_CHILDREN].pid == pid) {
            *status = child->ended[i % MAX_CHILDREN].status;
            return true;
        }
    return false;
}

/* Collects everybody who has ended; remembers the program's status. Returns false when no child is left. */
static bool reap(struct vt_child *child, bool *ended)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        note_end(child, pid, status);
        if (pid != child->pid)
            continue;
        child->status = status;
        *ended = true;
    }
    return pid == 0;
}

static void note_request(struct vt_child *child, int number)
{
    if (number == SIGHUP || number == SIGINT || number == SIGQUIT || number == SIGTERM)
        child->told_to_end = true;
}

void vt_child_wait(struct vt_child *child)
{
    bool ended = false;
    siginfo_t info;

    while (reap(child, &ended) && !ended) {
        int number = sigwaitinfo(&waited_for, &info);

        if (number < 0 || number == SIGCHLD)
            continue;
        note_request(child, number);
        /* The kernel sends the terminal's signals to the whole group. A process that sends one to us alone means the
         * program; unless it is the program, which has then sent it to its group. */
        if (info.si_code <= 0 && info.si_pid != child->pid)
            kill(child->pid, number);
    }
}

/* Our children that the program's tree left behind. Returns how many; the first one is the example for the notice. */
static int count_orphans(const struct vt_child *child, pid_t *first)
{
    static pid_t list[MAX_CHILDREN];
    int count = list_children(list, MAX_CHILDREN), orphans = 0;

    for (int i = 0; i < count; i++)
        if (!is_inherited(child, list[i]) && !orphans++)
            *first = list[i];
    return orphans;
}

static void print_notice(int orphans, pid_t first)
{
    char path[64], name[64] = "";
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/comm", first);
    file = fopen(path, "re");
    if (file) {
        if (fgets(name, sizeof(name), file))
            name[strcspn(name, "\n")] = 0;
        fclose(file);
    }
    vt_say("the program has ended; waiting for %d process%s of it (%d %s%s); Ctrl-C ends this", orphans,
           orphans == 1 ? "" : "es", first, name, orphans == 1 ? "" : ", ...");
}

void vt_child_wait_orphans(struct vt_child *child, bool quiet)
{
    const struct timespec tick = {.tv_nsec = 200000000};
    time_t start = time(NULL);
    bool noticed = quiet, ended;
    pid_t first = 0;
    int orphans;

    while (reap(child, &ended) && (orphans = count_orphans(child, &first)) > 0) {
        long waited = (long)(time(NULL) - start);
        int number;

        if (child->told_to_end && waited >= GRACE_S)
            return;
        if (!noticed && waited >= NOTICE_AFTER_S) {
            print_notice(orphans, first);
            noticed = true;
        }
        number = sigtimedwait(&waited_for, NULL, &tick);
        if (number == SIGHUP || number == SIGINT || number == SIGQUIT || number == SIGTERM)
            return;
    }
}

_Noreturn void vt_child_end_like(const struct vt_child *child)
{
    const struct rlimit no_core = {0, 0};
    int number = WTERMSIG(child->status);
    sigset_t set;

    if (WIFEXITED(child->status))
        exit(WEXITSTATUS(child->status));

    /* The program has left its core; ours would only take its place. */
    fflush(NULL);
    setrlimit(RLIMIT_CORE, &no_core);
    prctl(PR_SET_DUMPABLE, 0);
    signal(number, SIG_DFL);
    sigemptyset(&set);
    sigaddset(&set, number);
    raise(number);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    exit(128 + number);
}
