/*
 * Places and failures of the page. Places come in the order of their best rank by what is live, what was live at the peak,
 * what was ever allocated and what leaks, as long as the budget lasts; the others are added up per level, kind and device.
 *
 *   site_keys  names of the columns; those in site_texts hold numbers of strings
 *   sites      one array per place
 *   others     what the places hold that found no room: level, kind, device, shown, and the sums
 *   at         per recorded moment what places held then, as pairs (place in the list, bytes), and what others did
 *   at_left    names of the recorded moments that are not in `at` and not shown; at_more: how many there are
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "views/html.h"
#include "views/json.h"

#define FAILURES 200u
#define MOMENTS 6u
#define LEFT_NAMED 12u

/* What a place has, as in the report's JSON and in its words, behind the columns that put_site() makes itself. */
static const char *const keys[] = {"live_bytes",  "live_count",    "at_peak_bytes", "peak_bytes",
                                   "alloc_calls", "free_calls",    "total_bytes",   "threads",
                                   "streams",     "holds_tensors", "growth",        "category_bytes"};
static const char *const texts[] = {"level", "kind", "api", "phase", "range", "category", "category_reason", "verdict"};

#define KEYS (sizeof keys / sizeof *keys)
#define TEXTS (sizeof texts / sizeof *texts)

static void put_keys(struct vt_page *page)
{
    struct vt_out *out = &page->x.out;
    size_t i;

    vt_out_text(out, ",\n\"site_keys\":[\"id\",\"device\",\"stack\",\"user\",\"cut\",\"shown\",\"memory\",\"leaked_"
                     "bytes\",\"owner\",\"name\"");
    for (i = 0; i < KEYS; i++)
        vt_out_format(out, ",\"%s\"", keys[i]);
    for (i = 0; i < TEXTS; i++)
        vt_out_format(out, ",\"%s\"", texts[i]);
    vt_out_text(out, "],\n\"site_texts\":[\"owner\",\"name\"");
    for (i = 0; i < TEXTS; i++)
        vt_out_format(out, ",\"%s\"", texts[i]);
    vt_out_text(out, "]");
}

static bool is_shown(const struct vt_page *page, const struct vt_site_row *row)
{
    return vt_kind_is_memory(row->record->kind) && vt_view_is_shown(&page->x.a, row);
}

/* False: no room. */
static bool put_site(struct vt_page *page, uint32_t index)
{
    const struct vt_site_row *row = &page->x.a.model.sites[index];
    struct vt_page_stack stack = vt_page_stack(page, row->record->stack, row->record->python_stack,
                                               VT_PAGE_STACKS - 2 * VT_PAGE_TEXT);
    struct vt_page_buffer *b = &page->sites;
    json_t *figures, *value;
    size_t i;

    if (!stack.whole)
        return false;
    figures = vt_json_site_figures(&page->x.a, index);
    vt_page_put(b, "%s[%u,%d,%u,%d,%d,%d,%d,%llu,", page->site_count ? ",\n" : "\n", row->index, row->record->device,
                stack.node, stack.user, stack.cut, is_shown(page, row), vt_kind_is_memory(row->record->kind),
                (unsigned long long)vt_export_value(row, VT_EXPORT_LEAKED).bytes);
    vt_page_put(b, "%u,%u", vt_page_string(page, vt_export_category(&page->x, row)),
                vt_page_string(page, row->index < page->x.a.model.site_count ? page->names[row->index] : NULL));
    for (i = 0; i < KEYS; i++) {
        value = json_object_get(figures, keys[i]);
        vt_page_put(b, ",");
        vt_page_put_json(b, value ? json_incref(value) : json_null());
    }
    for (i = 0; i < TEXTS; i++)
        vt_page_put(b, ",%u", vt_page_string(page, json_string_value(json_object_get(figures, texts[i]))));
    vt_page_put(b, "]");
    json_decref(figures);
    if (row->index < page->x.a.model.site_count)
        page->number_of[row->index] = ++page->site_count;
    return true;
}

/* --- which places ---------------------------------------------------------------------------------------------------- */

struct rank {
    uint64_t value;
    uint32_t row, best;
};

static int by_value(const void *a, const void *b)
{
    const struct rank *x = a, *y = b;

    if (x->value != y->value)
        return x->value < y->value ? 1 : -1;
    return x->row < y->row ? -1 : x->row > y->row;
}

static int by_best(const void *a, const void *b)
{
    const struct rank *x = a, *y = b;

    if (x->best != y->best)
        return x->best < y->best ? -1 : 1;
    return x->row < y->row ? -1 : x->row > y->row;
}

/* All places, the most important first; NULL: no memory. To be freed. */
static struct rank *ranked(const struct vt_model *m)
{
    struct rank *list = calloc((size_t)m->site_count + 1, sizeof *list);
    unsigned type;
    uint32_t i;

    if (!list)
        return NULL;
    for (i = 0; i < m->site_count; i++)
        list[i] = (struct rank){0, i, VT_NONE};
    for (type = 0; type < VT_EXPORT_TYPES; type++) {
        for (i = 0; i < m->site_count; i++)
            list[i].value = vt_export_value(&m->sites[list[i].row], type).bytes;
        qsort(list, m->site_count, sizeof *list, by_value);
        for (i = 0; i < m->site_count && list[i].value; i++)
            list[i].best = list[i].best < i ? list[i].best : i;
    }
    qsort(list, m->site_count, sizeof *list, by_best);
    return list;
}

struct other {
    uint64_t sites, bytes[VT_EXPORT_TYPES], counts[VT_EXPORT_TYPES];
};

/* Sums of the places without room, from rank `from` on. A kind and a device say what is added up together. */
static void put_others(struct vt_page *page, struct rank *list, uint32_t from)
{
    const struct vt_model *m = &page->x.a.model;
    uint32_t i, j, groups = 0;
    unsigned type;

    for (i = from; i < m->site_count && groups < 256; i++) {
        const struct vt_site_row *first;
        struct other sum = {0};
        bool shown;

        if (list[i].row == VT_NONE)
            continue;
        first = &m->sites[list[i].row];
        shown = is_shown(page, first);

        for (j = i; j < m->site_count; j++) {
            const struct vt_site_row *row = list[j].row == VT_NONE ? NULL : &m->sites[list[j].row];

            if (!row || row->record->level != first->record->level || row->record->kind != first->record->kind ||
                row->record->device != first->record->device || is_shown(page, row) != shown)
                continue;
            sum.sites++;
            for (type = 0; type < VT_EXPORT_TYPES; type++) {
                struct vt_export_value value = vt_export_value(row, type);

                sum.bytes[type] += value.bytes;
                sum.counts[type] += value.count;
            }
            if (j > i)
                list[j].row = VT_NONE;
        }
        vt_page_put(
            &page->others,
            "%s{\"level\":\"%s\",\"kind\":\"%s\",\"device\":%d,\"shown\":%d,\"memory\":%d,\"sites\":%llu,"
            "\"live_bytes\":%llu,\"live_count\":%llu,\"at_peak_bytes\":%llu,\"total_bytes\":%llu,"
            "\"alloc_calls\":%llu,\"leaked_bytes\":%llu}",
            groups++ ? ",\n" : "\n", vt_level_name(first->record->level), vt_kind_name(first->record->kind),
            first->record->device, shown, vt_kind_is_memory(first->record->kind), (unsigned long long)sum.sites,
            (unsigned long long)sum.bytes[VT_EXPORT_LIVE], (unsigned long long)sum.counts[VT_EXPORT_LIVE],
            (unsigned long long)sum.bytes[VT_EXPORT_AT_PEAK], (unsigned long long)sum.bytes[VT_EXPORT_ALLOCATED],
            (unsigned long long)sum.counts[VT_EXPORT_ALLOCATED], (unsigned long long)sum.bytes[VT_EXPORT_LEAKED]);
    }
}

static void name_sites(struct vt_page *page, const struct rank *list)
{
    uint32_t count = page->x.a.model.site_count, i;
    const struct vt_site_row **rows = calloc((size_t)count + 1, sizeof *rows);

    for (i = 0; rows && i < count; i++)
        rows[i] = &page->x.a.model.sites[list[i].row];
    if (rows)
        vt_page_name_sites(page, rows, count);
    free(rows);
}

static void add_sites(struct vt_page *page)
{
    struct rank *list = ranked(&page->x.a.model);
    uint32_t i = 0;

    if (!list) {
        vt_export_fail(&page->x, -ENOMEM);
        return;
    }
    name_sites(page, list);
    while (i < page->x.a.model.site_count && vt_page_stack_bytes(page) < VT_PAGE_STACKS - 4 * VT_PAGE_TEXT &&
           put_site(page, list[i].row))
        i++;
    vt_page_lacks(page, "sites", page->x.a.model.site_count - i);
    put_others(page, list, i);
    free(list);
}

/* --- failures -------------------------------------------------------------------------------------------------------- */

static bool put_failure_stack(struct vt_page *page, json_t *object, const char *key, uint32_t native, uint32_t python)
{
    struct vt_page_stack stack = vt_page_stack(page, native, python, VT_PAGE_FAILURES);

    json_object_set_new(object, key, json_integer(stack.node));
    return stack.whole;
}

static bool put_failure(struct vt_page *page, uint32_t index)
{
    const struct vt_failure *f = page->x.a.model.failures[index].record;
    json_t *object = vt_json_failure(&page->x.a, index);

    if (!put_failure_stack(page, object, "frames", f->stack, f->python_stack) ||
        !put_failure_stack(page, object, "allocated_at", f->allocated_at, f->allocated_python) ||
        !put_failure_stack(page, object, "freed_at", f->freed_at, f->freed_python)) {
        json_decref(object);
        return false;
    }
    json_object_set_new(object, "device", json_integer(f->device));
    json_object_set_new(object, "time_s", seconds(f->last_ns));
    vt_page_put(&page->failures, "%s", index ? ",\n" : "\n");
    vt_page_put_json(&page->failures, object);
    return true;
}

static void add_failures(struct vt_page *page)
{
    uint32_t i = 0;

    while (i < page->x.a.model.failure_count && i < FAILURES && vt_page_stack_bytes(page) < VT_PAGE_FAILURES &&
           put_failure(page, i))
        i++;
    vt_page_lacks(page, "failures", page->x.a.model.failure_count - i);
}

/* --- other moments ----------------------------------------------------------------------------------------------------- */

static void put_moment(struct vt_page *page, const struct vt_moment *moment, const char *name, size_t most)
{
    const struct vt_model *m = &page->x.a.model;
    struct vt_page_buffer *b = &page->moments;
    uint64_t others[VT_LEVEL_COUNT + 1] = {0}, i;
    bool any = false;

    vt_page_put(b, "%s{\"name\":", b->used ? ",\n" : "\n");
    vt_page_put_json(b, vt_json_chars(name));
    vt_page_put(b, ",\"values\":[");
    for (i = 0; i < moment->sites; i++) {
        const struct vt_moment_site *s = vt_reading_moment_site(m->reading, moment->first_site + i);
        const struct vt_site_row *row = s ? vt_page_row(page, s->site) : NULL;

        if (!s)
            break;
        if (!row || !vt_kind_is_memory(row->record->kind))
            continue;
        if (page->number_of[row->index] && b->used < most) {
            vt_page_put(b, "%s%u,%llu", any ? "," : "", page->number_of[row->index] - 1,
                        (unsigned long long)s->live_bytes);
            any = true;
            continue;
        }
        others[row->record->level == VT_LEVEL_TENSOR] += s->live_bytes;
        others[VT_LEVEL_COUNT] += is_shown(page, row) ? s->live_bytes : 0;
    }
    vt_page_put(b, "],\"others\":{\"driver\":%llu,\"tensor\":%llu,\"all\":%llu}}", (unsigned long long)others[0],
                (unsigned long long)others[1], (unsigned long long)others[2]);
}

/* Which moments come first: those that the diagnosis looks at, then those that the program named, then the other refusals. */
enum { FIRST_OOM, NEWEST_OOM, FINALIZE, NAMED, OTHER_OOM, WANTS };

/* How much a moment is wanted; the first and the newest refusal are those with these numbers. */
static unsigned want(const struct vt_moment *moment, uint64_t number, uint64_t first_oom, uint64_t newest_oom)
{
    if (moment->kind != VT_MOMENT_OOM)
        return moment->kind == VT_MOMENT_FINALIZE ? FINALIZE : NAMED;
    return number == first_oom ? FIRST_OOM : number == newest_oom ? NEWEST_OOM : OTHER_OOM;
}

static const struct vt_moment *moment_at(const struct vt_model *m, uint64_t number)
{
    const struct vt_moment *moment = vt_reading_moment(m->reading, number);

    return moment && moment->name[0] && moment != m->recorded ? moment : NULL;
}

static void put_left_moment(struct vt_page_buffer *b, const char *name, uint64_t left)
{
    if (left > LEFT_NAMED)
        return;
    vt_page_put(b, left > 1 ? "," : "");
    vt_page_put_json(b, vt_json_chars(name));
}

static void add_moments(struct vt_page *page)
{
    const struct vt_model *m = &page->x.a.model;
    uint64_t count = vt_reading_count(m->reading, VT_MOMENTS), first = UINT64_MAX, newest = UINT64_MAX, left = 0, i;
    char name[sizeof((struct vt_moment *)0)->name + 1] = "";
    const struct vt_moment *moment;
    unsigned wanted, taken = 0;

    for (i = 0; i < count; i++)
        if ((moment = moment_at(m, i)) && moment->kind == VT_MOMENT_OOM) {
            first = first == UINT64_MAX ? i : first;
            newest = i;
        }
    for (wanted = 0; wanted < WANTS; wanted++)
        for (i = 0; i < count; i++) {
            if (!(moment = moment_at(m, i)) || want(moment, i, first, newest) != wanted)
                continue;
            memcpy(name, moment->name, sizeof moment->name);
            if (taken < MOMENTS)
                put_moment(page, moment, name, VT_PAGE_MOMENTS / MOMENTS * ++taken);
            else
                put_left_moment(&page->moments_left, name, ++left);
        }
    vt_page_put_key(page, "at_more", number(left));
}

void vt_page_write_stacks(struct vt_page *page)
{
    add_failures(page);
    add_sites(page);
    add_moments(page);
    put_keys(page);
    vt_page_flush_list(page, "sites", &page->sites);
    vt_page_flush_list(page, "others", &page->others);
    vt_page_flush_list(page, "failures", &page->failures);
    vt_page_flush_list(page, "at", &page->moments);
    vt_page_flush_list(page, "at_left", &page->moments_left);
    vt_page_write_tables(page);
}
