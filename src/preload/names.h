/*
 * Stores the names of native frames in the recording (VT_NAMES), so that it can be read where the program's files are
 * not, and where they are of another build; and what nobody could find out later at all: names of code that was generated,
 * and of files that are deleted.
 *
 * Done when the process ends and when it runs out of memory, in every report mode and under `vramtrack run`: the mode says
 * what is printed, not what is recorded. A process that is killed has stored nothing of what came since.
 */
#ifndef VT_PRELOAD_NAMES_H
#define VT_PRELOAD_NAMES_H

#include "analysis/symbols.h"
#include "recording/reader.h"

#define VT_NAMES_NS 1500000000ull /* how long is looked up; the frames of a report that was just made always are */

/*
 * Looks up what the recording has no names of yet, places with the most memory first, and adds it. reading: a copy of the
 * recording made a moment ago. symbols: what a report was made with, so that its answers are kept, or a new one.
 * Without the state lock, which is taken for small batches; nothing is looked up while it is held. With vt_tls.busy set,
 * which it clears for the moments of storing. One thread at a time. Never fails: what finds no room is left out.
 */
void vt_names_store(const struct vt_reading *reading, struct vt_symbols *symbols);

#endif
