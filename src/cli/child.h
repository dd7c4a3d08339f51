/*
 * The program that `vramtrack run` starts: as close to having been started by the shell itself as a parent can get.
 */
#ifndef VT_CHILD_H
#define VT_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

struct vt_child {
    pid_t pid;
    int status;       /* of the program, as waitpid gives it */
    bool told_to_end; /* HUP, INT, QUIT or TERM came in */
    pid_t *inherited; /* children that this process had before it started the program */
    int inherited_count;
    struct vt_ended *ended; /* the program and the orphans that we have collected */
    int ended_count;
};

struct vt_ended {
    pid_t pid;
    int status;
};

/* Starts argv[0] as execvp finds it. Returns 0, or the errno of the exec. `adopt`: orphans of the tree become ours. */
int vt_child_start(struct vt_child *child, char **argv, bool adopt);

/* Until the program has ended; signals that are sent to this process alone are passed on to it. */
void vt_child_wait(struct vt_child *child);

/* Until the processes that outlived the program have ended, or somebody asks to stop. `quiet`: without a word. */
void vt_child_wait_orphans(struct vt_child *child, bool quiet);

/* How a process of the tree ended, as waitpid gave it. False if its own parent has collected it. */
bool vt_child_status(const struct vt_child *child, pid_t pid, int *status);

/* Ends this process the way the program ended: its exit status, or the signal that killed it. */
_Noreturn void vt_child_end_like(const struct vt_child *child);

#endif
