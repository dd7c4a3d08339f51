/*
 * The writer of pickles; see export_pickle.h.
 */
#include "views/export_pickle.h"

#include <string.h>

enum {
    PROTO = 0x80,
    STOP = '.',
    MARK = '(',
    EMPTY_DICT = '}',
    SETITEMS = 'u',
    EMPTY_LIST = ']',
    APPENDS = 'e',
    BINUNICODE = 'X',
    BININT1 = 'K',
    BININT2 = 'M',
    BININT = 'J',
    LONG1 = 0x8a,
    NEWTRUE = 0x88,
    NEWFALSE = 0x89,
    TUPLE2 = 0x86,
    BINPUT = 'q',
    LONG_BINPUT = 'r',
    BINGET = 'h',
    LONG_BINGET = 'j'
};

static void op(struct vt_pickle *p, unsigned code, uint64_t argument, unsigned bytes)
{
    unsigned char text[9] = {(unsigned char)code};
    unsigned i;

    for (i = 0; i < bytes; i++)
        text[1 + i] = (unsigned char)(argument >> 8 * i);
    vt_out_bytes(&p->x->out, text, 1 + bytes);
}

void vt_pickle_begin(struct vt_pickle *p, struct vt_export *x)
{
    memset(p, 0, sizeof *p);
    p->x = x;
    op(p, PROTO, 2, 1);
}

void vt_pickle_end(struct vt_pickle *p)
{
    op(p, STOP, 0, 0);
}

void vt_pickle_dict(struct vt_pickle *p)
{
    op(p, EMPTY_DICT, 0, 0);
    op(p, MARK, 0, 0);
}

void vt_pickle_dict_end(struct vt_pickle *p)
{
    op(p, SETITEMS, 0, 0);
}

void vt_pickle_list(struct vt_pickle *p, struct vt_pickle_list *list)
{
    op(p, EMPTY_LIST, 0, 0);
    op(p, MARK, 0, 0);
    list->batch = 0;
}

void vt_pickle_element(struct vt_pickle *p, struct vt_pickle_list *list)
{
    if (list->batch++ < VT_PICKLE_BATCH)
        return;
    op(p, APPENDS, 0, 0);
    op(p, MARK, 0, 0);
    list->batch = 1;
}

void vt_pickle_list_end(struct vt_pickle *p)
{
    op(p, APPENDS, 0, 0);
}

void vt_pickle_word(struct vt_pickle *p, const char *literal)
{
    unsigned i;

    for (i = 0; i < p->word_count; i++)
        if (p->words[i] == literal) {
            vt_pickle_again(p, p->words_at[i]);
            return;
        }
    vt_pickle_text(p, literal);
    if (p->word_count == sizeof p->words / sizeof p->words[0])
        return;
    p->words[p->word_count] = literal;
    p->words_at[p->word_count++] = vt_pickle_keep(p);
}

void vt_pickle_text(struct vt_pickle *p, const char *text)
{
    const char *clean = vt_export_clean(p->x, text);
    size_t length = strlen(clean);

    op(p, BINUNICODE, length, 4);
    vt_out_bytes(&p->x->out, clean, length);
}

void vt_pickle_number(struct vt_pickle *p, uint64_t number)
{
    unsigned bytes = 1;

    if (number > INT64_MAX)
        number = INT64_MAX;
    if (number <= 0xff) {
        op(p, BININT1, number, 1);
    } else if (number <= 0xffff) {
        op(p, BININT2, number, 2);
    } else if (number <= INT32_MAX) {
        op(p, BININT, number, 4);
    } else { /* two's complement: the highest bit stays 0 */
        while (number >> (8 * bytes - 1))
            bytes++;
        vt_out_bytes(&p->x->out, (const unsigned char[]){LONG1, (unsigned char)bytes}, 2);
        vt_out_bytes(&p->x->out, &(const uint64_t){number}, bytes);
    }
}

void vt_pickle_bool(struct vt_pickle *p, bool value)
{
    op(p, value ? NEWTRUE : NEWFALSE, 0, 0);
}

void vt_pickle_pair(struct vt_pickle *p, uint64_t first, uint64_t second)
{
    vt_pickle_number(p, first);
    vt_pickle_number(p, second);
    op(p, TUPLE2, 0, 0);
}

void vt_pickle_entry(struct vt_pickle *p, const char *key, uint64_t number)
{
    vt_pickle_word(p, key);
    vt_pickle_number(p, number);
}

uint32_t vt_pickle_keep(struct vt_pickle *p)
{
    uint32_t memo = p->memos++;

    op(p, memo <= 0xff ? BINPUT : LONG_BINPUT, memo, memo <= 0xff ? 1 : 4);
    return memo;
}

void vt_pickle_again(struct vt_pickle *p, uint32_t memo)
{
    op(p, memo <= 0xff ? BINGET : LONG_BINGET, memo, memo <= 0xff ? 1 : 4);
}
