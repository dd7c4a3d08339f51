/*
 * A frame of ours that must be told when an exception or pthread_exit passes through it, without making this library depend on
 * the C++ exception runtime: a personality routine that only looks on (the Itanium C++ ABI's level I interface).
 *
 *   VT_WATCH_UNWINDING(routine, statement)   defines the routine, which runs the statement when the frame is taken away
 *   VT_UNWOUND_BY(routine)                   first in the frame's function, which is noinline VT_UNSANITIZED
 */
#ifndef VT_PRELOAD_UNWOUND_H
#define VT_PRELOAD_UNWOUND_H

#include <stdint.h>

/* A sanitizer that counts calls and returns would miss the return of a frame that is unwound. */
#ifdef __clang__
#define VT_UNSANITIZED __attribute__((no_sanitize("thread", "address")))
#else
#define VT_UNSANITIZED __attribute__((noclone, no_sanitize_thread, no_sanitize_address))
#endif

#define VT_UA_CLEANUP_PHASE 2 /* of _Unwind_Action: the frame is being taken away */
#define VT_URC_CONTINUE_UNWIND 8

#define VT_WATCH_UNWINDING(routine, statement)                                                                         \
    int routine(int version, int actions, uint64_t class, void *exception, void *context);                             \
    __attribute__((used, visibility("hidden"))) int routine(int version, int actions, uint64_t class, void *exception, \
                                                            void *context)                                             \
    {                                                                                                                  \
        (void)version, (void)class, (void)exception, (void)context;                                                    \
        if (actions & VT_UA_CLEANUP_PHASE)                                                                             \
            statement;                                                                                                 \
        return VT_URC_CONTINUE_UNWIND;                                                                                 \
    }

/* 0x1b: the routine's address is relative to its place, four bytes. */
#define VT_UNWOUND_BY(routine) __asm__ volatile(".cfi_personality 0x1b, " #routine)

#endif
