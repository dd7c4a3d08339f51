/*
 * A reading from the inside, for reader.c and reader_check.c alone, and the check of an image on opening.
 */
#ifndef VRAMTRACK_RECORDING_READER_CHECK_H
#define VRAMTRACK_RECORDING_READER_CHECK_H

#include "recording/reader.h"

#define VT_NOTES_MAX 64

struct vt_reading {
    const uint8_t *image;
    uint64_t bytes;
    void *mapping; /* to unmap; NULL for images in memory */
    void *copy;    /* to free: an aligned copy of an image that was not aligned */
    char *name;
    struct vt_header header;
    uint64_t events; /* events ever written, before clipping */
    bool incomplete[VT_SECTION_COUNT];
    void *widened[VT_SECTION_COUNT]; /* records of an older minor version, extended with zeros */
    char *notes[VT_NOTES_MAX];
    uint32_t note_count;
};

/* Copies the header of an image that is known to be a recording of this major version, and repairs the copy, with notes of what
 * was repaired. r->image and r->bytes are set, all else is zero. */
void vt_reading_check(struct vt_reading *r);

/* The size of a section's records as this program knows them; of those in `widened`. */
uint32_t vt_section_bytes(enum vt_section section);

#endif
