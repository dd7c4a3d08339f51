/*
 * The index of recorded names: the frames of all records in one array, and where those of an address begin, sorted by
 * address; see recorded_names.h. Sorted and not hashed: a made-up recording could make every key collide.
 */
#include "analysis/recorded_names.h"

#include <stdlib.h>

#include "analysis/objfile.h"

struct entry {
    uint64_t where;
    uint32_t module;
    uint32_t first; /* in frames */
    uint32_t count;
};

struct vt_recorded_names {
    struct vt_symbol_frame *frames;
    struct entry *entries; /* by module, where and first */
    uint32_t frame_count, entry_count;
};

static const char *chars_or_null(const struct vt_reading *reading, uint32_t id)
{
    const char *text = vt_reading_chars(reading, id);

    return *text ? text : NULL;
}

/* How many records from `first` on are those of one address, whole and in order; 0: they are damaged. */
static uint32_t group_at(const struct vt_reading *reading, uint64_t first)
{
    const struct vt_frame_name *head = vt_reading_frame_name(reading, first), *record = head;
    uint32_t count = 0;

    while (record && record->module == head->module && record->where == head->where && record->inner == count &&
           count < VT_OBJECT_FRAMES) {
        count++;
        if (record->flags & VT_NAME_LAST)
            return count;
        record = vt_reading_frame_name(reading, first + count);
    }
    return 0;
}

static void take_group(struct vt_recorded_names *names, const struct vt_reading *reading, uint64_t first,
                       uint32_t count)
{
    const struct vt_frame_name *record = vt_reading_frame_name(reading, first);
    struct entry *entry = &names->entries[names->entry_count++];
    struct vt_symbol_frame *frame = names->frames + names->frame_count;
    uint32_t i;

    *entry = (struct entry){record->where, record->module, names->frame_count, count};
    for (i = 0; i < count; i++) {
        record = vt_reading_frame_name(reading, first + i);
        frame[i] = (struct vt_symbol_frame){.function = chars_or_null(reading, record->function),
                                            .file = chars_or_null(reading, record->file),
                                            .line = record->line,
                                            .nearest = record->flags & VT_NAME_NEAREST};
    }
    names->frame_count += count;
    if (count == 1 && !frame->function && !frame->file)
        entry->count = 0; /* looked up, and nothing is known */
}

static int by_address(const void *left, const void *right)
{
    const struct entry *a = left, *b = right;

    if (a->module != b->module)
        return a->module < b->module ? -1 : 1;
    if (a->where != b->where)
        return a->where < b->where ? -1 : 1;
    return a->first < b->first ? -1 : a->first > b->first;
}

static void take_all(struct vt_recorded_names *names, const struct vt_reading *reading, uint64_t records)
{
    uint64_t i = 0;

    while (i < records) {
        uint32_t count = group_at(reading, i);

        if (count)
            take_group(names, reading, i, count);
        i += count ? count : 1;
    }
    qsort(names->entries, names->entry_count, sizeof *names->entries, by_address);
}

struct vt_recorded_names *vt_recorded_names_open(const struct vt_reading *reading)
{
    uint64_t records = vt_reading_count(reading, VT_NAMES);
    struct vt_recorded_names *names;

    if (!records || records > UINT32_MAX / 4 || !(names = calloc(1, sizeof *names)))
        return NULL;
    names->frames = calloc(records, sizeof *names->frames);
    names->entries = calloc(records, sizeof *names->entries);
    if (!names->frames || !names->entries) {
        vt_recorded_names_close(names);
        return NULL;
    }
    take_all(names, reading, records);
    return names;
}

void vt_recorded_names_close(struct vt_recorded_names *names)
{
    if (!names)
        return;
    free(names->frames);
    free(names->entries);
    free(names);
}

bool vt_recorded_names_find(const struct vt_recorded_names *names, uint32_t module, uint64_t where,
                            struct vt_symbol *symbol)
{
    const struct entry key = {.module = module, .where = where};
    uint32_t low = 0, high = names ? names->entry_count : 0;

    while (low < high) { /* the first that is not before the key: of several for one address the oldest */
        uint32_t middle = low + (high - low) / 2;

        if (by_address(&names->entries[middle], &key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (!names || low == names->entry_count || names->entries[low].module != module ||
        names->entries[low].where != where)
        return false;
    *symbol = (struct vt_symbol){names->frames + names->entries[low].first, names->entries[low].count};
    return true;
}
