/*
 * Looks for a signal frame on the stack. The kernel puts the address of the restorer (libc's stub that calls rt_sigreturn)
 * at the bottom of each; which address that is, is what it was told with each handler. An unwinder would know better, but
 * its first walk in a thread calls malloc. The stack is read through the kernel, because nobody knows where the stack of a
 * coroutine ends.
 */
#include "preload/handler.h"

#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define PAGE 4096u
#define LOOKED_AT (256u << 10) /* a signal frame has up to 11 KiB of registers; what the handler called lies below it */
#define SIGNALS 64

struct kernel_action { /* as the rt_sigaction system call has it */
    void *handler;
    unsigned long flags;
    void *restorer;
    unsigned long mask;
};

static bool on_alternate_stack(void)
{
    stack_t s;
    return syscall(SYS_sigaltstack, NULL, &s) == 0 && (s.ss_flags & SS_ONSTACK);
}

/* The restorers of all handlers: in practice one. */
static unsigned find_restorers(uintptr_t *found, unsigned most)
{
    unsigned n = 0;
    for (int s = 1; s <= SIGNALS; s++) {
        struct kernel_action a = {0};
        if (syscall(SYS_rt_sigaction, s, NULL, &a, sizeof a.mask) || (uintptr_t)a.handler <= 1 || !a.restorer)
            continue;
        unsigned i = 0;
        while (i < n && found[i] != (uintptr_t)a.restorer)
            i++;
        if (i == n && n < most)
            found[n++] = (uintptr_t)a.restorer;
    }
    return n;
}

/* By thread id: the process id stops working when the main thread has ended. */
static bool page_holds(uintptr_t address, uintptr_t above, const uintptr_t *wanted, unsigned count, bool *readable)
{
    uintptr_t words[PAGE / sizeof(uintptr_t)];
    struct iovec to = {words, PAGE}, from = {(void *)address, PAGE};
    *readable = syscall(SYS_process_vm_readv, syscall(SYS_gettid), &to, 1ul, &from, 1ul, 0ul) == PAGE;
    for (unsigned i = 0; *readable && i < PAGE / sizeof *words; i++)
        for (unsigned k = 0; k < count; k++)
            if (words[i] == wanted[k] && address + i * sizeof *words > above)
                return true;
    return false;
}

__attribute__((noinline)) bool vt_in_signal_handler(void) /* its own variables lie below its frame address */
{
    uintptr_t restorers[4], here = (uintptr_t)__builtin_frame_address(0);
    if (on_alternate_stack())
        return true;
    unsigned count = find_restorers(restorers, 4);
    if (!count)
        return false; /* no handler is installed */
    for (uintptr_t page = here & ~(uintptr_t)(PAGE - 1); page < here + LOOKED_AT; page += PAGE) {
        bool readable;
        if (page_holds(page, here, restorers, count, &readable))
            return true;
        if (!readable) /* beyond the end of the stack; not even the first page: reading is forbidden here */
            return page <= here;
    }
    return false;
}
