/*
 * Python's evaluation loop in a file without local symbols; see objfile.h.
 *
 * Builds that are optimized by profile keep a few hundred bytes of _PyEval_EvalFrameDefault under its exported name, and
 * nearly all of it elsewhere, under a local one (…Default.cold) that strip takes away: Debian's own since 3.13. Merging
 * Python and native frames goes by these frames. The piece is told by its size: nothing in the interpreter comes near it.
 * The pieces of all functions are listed in .eh_frame_hdr, which unwinders need, so it is never stripped.
 */
#include <string.h>

#include "analysis/objfile.h"

#define LOOP "_PyEval_EvalFrameDefault"
#define LEAST (32u << 10) /* it has had 30 to 90 KiB since 3.8; the next largest, in 3.13 to 3.15, 33 to 39 */

/* Pointer encodings (LSB, .eh_frame_hdr): what linkers write, and nothing else is read. */
enum { UDATA4 = 0x03, PCREL_SDATA4 = 0x1b, DATAREL_SDATA4 = 0x3b };

struct bytes {
    const uint8_t *data;
    uint64_t size, address; /* in the file's address space */
};

static bool section_bytes(const struct vt_object *o, const char *name, struct bytes *out)
{
    Elf_Scn *section = vt_object_section(o->elf, o->main, name);
    Elf_Data *data = section ? o->elf->elf_getdata(section, NULL) : NULL;
    GElf_Shdr header;

    if (!data || !data->d_buf || !o->elf->gelf_getshdr(section, &header))
        return false;
    *out = (struct bytes){data->d_buf, data->d_size, header.sh_addr};
    return true;
}

static bool get32(const struct bytes *from, uint64_t at, uint32_t *value)
{
    if (from->size < sizeof *value || at > from->size - sizeof *value)
        return false;
    memcpy(value, from->data + at, sizeof *value);
    return true;
}

/* An address that is kept as its distance from another one. */
static uint64_t apart(uint64_t base, uint32_t distance)
{
    return base + (uint64_t)(int64_t)(int32_t)distance;
}

/* Piece i of the table: where it begins and how long it is. An entry of .eh_frame is its length, the distance to what
 * entries have in common, then the same begin once more, which shows that it is read rightly, and the length of the code. */
static bool read_piece(const struct bytes *index, const struct bytes *frames, uint32_t i, uint64_t *start,
                       uint32_t *size)
{
    uint32_t start_apart, entry_apart, again;
    uint64_t entry;

    if (!get32(index, 12 + 8ull * i, &start_apart) || !get32(index, 16 + 8ull * i, &entry_apart))
        return false;
    *start = apart(index->address, start_apart);
    entry = apart(index->address, entry_apart) - frames->address;
    if (entry > frames->size || !get32(frames, entry + 8, &again) || !get32(frames, entry + 12, size))
        return false;
    return apart(frames->address + entry + 8, again) == *start;
}

static const struct vt_object_symbol *exported_loop(const struct vt_object *o)
{
    uint32_t i;

    for (i = 0; i < o->symbol_count; i++)
        if (!strcmp(o->symbols[i].name, LOOP))
            return &o->symbols[i];
    return NULL;
}

bool vt_object_loop(const struct vt_object *o, struct vt_object_symbol *loop)
{
    static const uint8_t readable[] = {1, PCREL_SDATA4, UDATA4, DATAREL_SDATA4};
    const struct vt_object_symbol *exported = exported_loop(o);
    struct bytes index, frames;
    uint32_t i, count, size, second = 0;
    uint64_t start;

    if (!exported || !o->main || !section_bytes(o, ".eh_frame_hdr", &index) ||
        !section_bytes(o, ".eh_frame", &frames) || !get32(&index, 8, &count) ||
        memcmp(index.data, readable, sizeof readable) != 0)
        return false;
    *loop = *exported;
    loop->size = 0;
    for (i = 0; i < count && read_piece(&index, &frames, i, &start, &size); i++) {
        if (size <= loop->size) {
            second = size > second ? size : second;
            continue;
        }
        second = loop->size;
        loop->start = start;
        loop->size = size;
    }
    return i == count && loop->size >= LEAST && loop->size / 3 >= second / 2 && exported->size < loop->size / 8;
}
