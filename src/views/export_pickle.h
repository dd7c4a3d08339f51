/*
 * Python's pickle, protocol 2, as far as plain data needs it: the opcodes that both Python and the reader in PyTorch's
 * MemoryViz.js know (no globals, no integer of more than 8 bytes). Opcodes: CPython's Lib/pickletools.py.
 * Internal to src/views/export_torch*.c.
 */
#ifndef VRAMTRACK_EXPORT_PICKLE_H
#define VRAMTRACK_EXPORT_PICKLE_H

#include "views/export.h"

#define VT_PICKLE_BATCH \
    1000 /* elements between a mark and its APPENDS: more overflow the stack of a JavaScript engine */

struct vt_pickle {
    struct vt_export *x;
    uint32_t memos;         /* numbers given out */
    const char *words[128]; /* literals that have been written: number in the memo is words_at */
    uint32_t words_at[128];
    unsigned word_count;
};

struct vt_pickle_list {
    unsigned batch;
};

void vt_pickle_begin(struct vt_pickle *p, struct vt_export *x);
void vt_pickle_end(struct vt_pickle *p);

/* A dict: begin, then any number of keys and values by turns, end. Nothing else may be open at the end. */
void vt_pickle_dict(struct vt_pickle *p);
void vt_pickle_dict_end(struct vt_pickle *p);

/* A list of any length: begin, for each element element() and its value, end. */
void vt_pickle_list(struct vt_pickle *p, struct vt_pickle_list *list);
void vt_pickle_element(struct vt_pickle *p, struct vt_pickle_list *list);
void vt_pickle_list_end(struct vt_pickle *p);

/* A string literal of the program (told apart by its address): written once, referred to after that. */
void vt_pickle_word(struct vt_pickle *p, const char *literal);

/* A name of the recording; cleaned. */
void vt_pickle_text(struct vt_pickle *p, const char *text);

void vt_pickle_number(struct vt_pickle *p, uint64_t number); /* beyond INT64_MAX: that */
void vt_pickle_bool(struct vt_pickle *p, bool value);
void vt_pickle_pair(struct vt_pickle *p, uint64_t first, uint64_t second); /* a tuple */

/* key and number of a dict. */
void vt_pickle_entry(struct vt_pickle *p, const char *key, uint64_t number);

/* Gives the value that was just written a number; writes it again by its number. */
uint32_t vt_pickle_keep(struct vt_pickle *p);
void vt_pickle_again(struct vt_pickle *p, uint32_t memo);

#endif
