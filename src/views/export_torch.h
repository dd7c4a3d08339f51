/*
 * What a PyTorch snapshot is made of: the ranges of memory at a moment, and which of the newest events belong to them. The
 * viewer replays the events backwards from the ranges and fails if a block lies outside of every segment or is there twice;
 * so the same is done here first, and events that do not fit (torn by a kill, or of a live process) are left out.
 * Internal to src/views/export_torch*.c.
 */
#ifndef VRAMTRACK_EXPORT_TORCH_H
#define VRAMTRACK_EXPORT_TORCH_H

#include "views/export_pickle.h"

/* A segment (driver level: linear memory of a device, or physical memory that a process owns by a handle) or a block in one (a tensor). */
struct vt_range {
    uint64_t start, end;
    uint64_t requested;
    uint64_t blocks; /* segment: how many live blocks touch it, in the replay */
    uint32_t site;
    int16_t device;
    uint16_t stream, capture; /* index + 1; number of the graph capture; 0: none */
    uint8_t kind;
    bool whole; /* a segment that nobody hands on: it is one block itself */
};

struct vt_ranges {
    struct vt_range *list; /* by address; they do not overlap */
    size_t count, room;
};

struct vt_torch {
    struct vt_export *x;
    struct vt_ranges segments, blocks; /* at the moment; each block lies in segments that are not whole */
    uint64_t first, until;             /* numbers of the events that lead to it */
    uint8_t *keep;                     /* per event from `first`: it fits */
    uint64_t left_out;
    bool overflowed;                 /* there were older events */
    struct vt_torch_handle *handles; /* of physical memory; export_torch_handles.c */
    uint64_t next_address;
};

/* Stacks that have been written: (native, Python) -> number in the memo + 1, by hash. */
struct vt_torch_stacks {
    struct {
        uint64_t key;
        uint32_t memo;
    } * slots;
    uint32_t count, room; /* room: a power of two */
};

struct vt_torch_frames {
    struct vt_pickle *p;
    struct vt_export_frames frames;
    uint32_t *memos; /* per frame: number in the memo + 1 */
    uint32_t memo_room;
    struct vt_torch_stacks stacks;
};

/* Writes the key "frames" and a stack: ids, 0 for none. Lack of memory fails the export. */
void vt_torch_put_frames(struct vt_torch_frames *frames, uint32_t native, uint32_t python);
void vt_torch_frames_free(struct vt_torch_frames *frames);

/* Fills segments and blocks. Returns 0, -ENOMEM, or -ENODATA if single allocations are not known at the moment. */
int vt_torch_ranges(struct vt_torch *t);

/* Fills the rest. Returns 0 or -ENOMEM. */
int vt_torch_replay(struct vt_torch *t);

void vt_torch_free(struct vt_torch *t);

/* Makes a range of an event or a slot. False if it is none of a segment or block, or memory ran out. *level: enum vt_level. */
bool vt_torch_range(struct vt_torch *t, struct vt_range *range, unsigned *level, uint32_t site, uint64_t address,
                    uint64_t bytes);

/* Where a handle of physical memory is shown: always at the same address. 0: no room, or memory ran out. */
uint64_t vt_torch_handle_address(struct vt_torch *t, uint64_t handle, uint64_t bytes);
void vt_torch_handles_free(struct vt_torch *t);

/* Does this segment continue the one before it (mapped piece by piece)? */
bool vt_torch_continues(const struct vt_range *segment, const struct vt_range *next);

#endif
