/*
 * Places as people read them. The recording has a site for every stack, and many of them read alike: a line of Python that
 * calls several native functions, an inlined template, a loop over layers. And where one helper allocates for everybody, its
 * line says nothing, and who called it does: "zeros (train.py:6) < validate (train.py:15)".
 *
 * Two sites have the same
 *   chain   if they are of one kind and level, and their visible frames from the user frame outwards read the same: what
 *           the program did is the same, whatever was called for it. Growth and leaks are judged by chains.
 *   name    if, of one kind and level, user frame and shown caller are the same lines: what is listed is listed once.
 *
 * Uses malloc; belongs to one reading and one symbolizer. Not thread-safe per object.
 */
#ifndef VRAMTRACK_PLACES_H
#define VRAMTRACK_PLACES_H

#include <stddef.h>
#include <stdint.h>

#include "analysis/stack.h"

struct vt_place {
    const struct vt_site *site;
    struct vt_trace trace;
    const struct vt_display_frame *caller; /* shown behind the user frame; NULL: none needed */
    uint32_t user, chain, name;            /* the first place with the same user frame, chain, name */
};

struct vt_places {
    struct vt_place *list;
    uint32_t count;
};

/* Room for a place's name; longer ones are cut. */
#define VT_PLACE_NAME 256

/*
 * Builds the places of `count` sites. symbols and style may be NULL. Returns 0 or -ENOMEM; vt_places_free() in either case.
 * Costs a look-up of each stack's names, and the square of count in comparisons: for lists that somebody reads.
 */
int vt_places_build(struct vt_places *places, const struct vt_reading *reading, struct vt_symbols *symbols,
                    const struct vt_stack_style *style, const struct vt_site *const *sites, uint32_t count);
void vt_places_free(struct vt_places *places);

/* "validate (train.py:15)", or "zeros (train.py:6) < validate (train.py:15)". Returns buffer (VT_PLACE_NAME long). */
const char *vt_place_name(char *buffer, const struct vt_place *place);

#endif
