/*
 * Moments: copies of what was live, taken inside the recording. With the state lock held; cost is one pass over the
 * sites (and over the slots, if there are not too many).
 */
#ifndef VT_PRELOAD_MOMENT_H
#define VT_PRELOAD_MOMENT_H

#include "vramtrack/recording.h"

/* Takes a moment; it has no name yet, which hides it. VT_NONE: no room. */
uint32_t vt_moment_take(enum vt_moment_kind kind, uint32_t failure);

/* Calls it "oom-<number>". VT_NONE is passed over. */
void vt_moment_name_oom(uint32_t moment, uint32_t number);

/* Gives it a name, which shows it. */
void vt_moment_name(uint32_t moment, const char *name);

/* Takes one that the program, or somebody outside, gives a name (NULL or empty: "moment"; names of the recorder's own get
 * "mark-" before them). An older one of the same name makes room. Its index, or VT_NONE. */
uint32_t vt_moment_take_named(const char *name);

/* Takes it back: its room is used for the next one. */
void vt_moment_withdraw(uint32_t moment);

void vt_moment_forget(void);

#endif
