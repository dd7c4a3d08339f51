/*
 * The page's layers: per GPU and in two ways (by category, by place) what the memory that lists show consists of, from the events
 * that were kept. The names, and points [time, bytes of the first, of the second, ...], each at the highest sum of its interval.
 * "highest" has what each held at most, which need not be at one of these points: not less than at the peak of the recording.
 */
#include <stdlib.h>
#include <string.h>

#include "analysis/account.h"
#include "analysis/category.h"
#include "views/html.h"
#include "views/json.h"

#define LAYER_POINTS 600u /* on all devices together */
#define DEVICES 16
#define LAYERS 12u /* the last one is all others */
#define NAMED 400u /* places looked at for the layers' names */

struct layers {
    char *names[LAYERS];
    int sites[LAYERS];
    uint32_t count;
    int64_t live[LAYERS], most[LAYERS];
};

/* One GPU and one way of telling its memory apart. */
struct picture {
    struct layers layers;
    int device;
    bool places;
    uint8_t *layer_of; /* per site; UINT8_MAX: not on this device, or not shown */
};

static unsigned long long micro(uint64_t ns)
{
    return (unsigned long long)(ns / 1000);
}

static unsigned long long positive(int64_t bytes)
{
    return bytes < 0 ? 0 : (unsigned long long)bytes;
}

static bool is_layered(const struct vt_page *page, const struct vt_site_row *row, int device)
{
    return row->record->device == device && vt_kind_is_memory(row->record->kind) &&
           row->record->kind != VT_KIND_PINNED && row->record->kind != VT_KIND_REGISTERED &&
           vt_view_is_shown(&page->x.a, row);
}

/* The layer with a name; a new one while there is room, else the last. */
static uint8_t layer_named(struct layers *layers, const char *name, uint32_t site)
{
    uint32_t i;

    for (i = 0; i < layers->count && i < LAYERS - 1; i++)
        if (!strcmp(layers->names[i], name))
            return (uint8_t)i;
    if (layers->count >= LAYERS - 1 || !(layers->names[layers->count] = strdup(name)))
        return LAYERS - 1;
    layers->sites[layers->count] = (int)site;
    return (uint8_t)layers->count++;
}

struct rank {
    uint64_t value;
    const struct vt_site_row *row;
};

static int by_value(const void *a, const void *b)
{
    const struct rank *x = a, *y = b;

    if (x->value != y->value)
        return x->value < y->value ? 1 : -1;
    return x->row->index < y->row->index ? -1 : x->row->index > y->row->index;
}

static bool is_tensor_without_category(const struct vt_site_row *row, const char *category)
{
    return row->record->level == VT_LEVEL_TENSOR && !strcmp(category, vt_category_name(VT_CATEGORY_UNKNOWN));
}

/* What an account calls it: tensors without a category are "other". */
static const char *category_of(struct vt_page *page, const struct vt_site_row *row)
{
    const char *category = vt_export_category(&page->x, row);

    return is_tensor_without_category(row, category) ? vt_category_name(VT_CATEGORY_OTHER) : category;
}

static void name_place(struct vt_page *page, struct picture *p, const struct vt_site_row *row)
{
    char label[VT_EXPORT_LABEL];
    struct vt_trace trace;

    if (page->names[row->index]) {
        p->layer_of[row->index] = layer_named(&p->layers, page->names[row->index], row->index);
        return;
    }
    vt_view_trace(&page->x.a, &trace, row->record->stack, row->record->python_stack);
    vt_export_label(label, vt_trace_user(&trace));
    vt_trace_free(&trace);
    p->layer_of[row->index] = layer_named(&p->layers, label, row->index);
}

/* Gives each place its layer, beginning with those that held most at the peak. */
static bool name_layers(struct vt_page *page, struct picture *p)
{
    const struct vt_model *m = &page->x.a.model;
    struct rank *list = calloc((size_t)m->site_count + 1, sizeof *list);
    uint32_t i, count = 0;

    if (!list || !(p->layer_of = malloc((size_t)m->site_count + 1))) {
        free(list);
        return false;
    }
    memset(p->layer_of, UINT8_MAX, (size_t)m->site_count + 1);
    for (i = 0; i < m->site_count; i++)
        if (m->sites[i].index < m->site_count && is_layered(page, &m->sites[i], p->device))
            list[count++] = (struct rank){m->sites[i].at_peak_bytes + m->sites[i].record->peak_bytes / 2, &m->sites[i]};
    qsort(list, count, sizeof *list, by_value);
    for (i = 0; i < count; i++)
        if (p->places && i >= NAMED)
            p->layer_of[list[i].row->index] = LAYERS - 1;
        else if (p->places)
            name_place(page, p, list[i].row);
        else
            p->layer_of[list[i].row->index] = layer_named(&p->layers, category_of(page, list[i].row),
                                                          list[i].row->index);
    free(list);
    return count > 0;
}

static void put_layer_point(struct vt_page_buffer *b, const struct picture *p, uint64_t us)
{
    uint32_t i;

    vt_page_put(b, "%llu", (unsigned long long)us);
    for (i = 0; i < LAYERS; i++)
        if (i < p->layers.count || i == LAYERS - 1)
            vt_page_put(b, ",%llu", positive(p->layers.live[i]));
    vt_page_put(b, ",");
}

/* The events of the device once more: *sum is what its layers hold. False: the event changes none of them. */
static bool apply(struct picture *p, uint32_t sites, uint32_t site, int64_t bytes, int64_t *sum)
{
    uint8_t layer = site < sites ? p->layer_of[site] : UINT8_MAX;

    if (layer == UINT8_MAX)
        return false;
    if (__builtin_add_overflow(p->layers.live[layer], bytes, &p->layers.live[layer]) ||
        __builtin_add_overflow(*sum, bytes, sum))
        p->layers.live[layer] = *sum = 0;
    return true;
}

static int64_t start(struct picture *p, const struct vt_page_replay *r, uint32_t sites)
{
    int64_t sum = 0;
    uint32_t i;

    memset(p->layers.live, 0, sizeof p->layers.live);
    for (i = 0; i < sites && i < r->sites; i++)
        apply(p, sites, i, r->site_live[i], &sum);
    return sum;
}

static void raise(int64_t *most, uint64_t bytes)
{
    if (bytes > (uint64_t)*most)
        *most = bytes > INT64_MAX ? INT64_MAX : (int64_t)bytes;
}

/* What each layer holds at the peak, and at the page's moment: older events, which are not kept, may have led there. */
static void begin_most(struct picture *p, const struct vt_model *m)
{
    uint64_t at_peak[LAYERS] = {0}, live[LAYERS] = {0};
    uint32_t i;

    for (i = 0; i < m->site_count; i++) {
        uint8_t layer = m->sites[i].index < m->site_count ? p->layer_of[m->sites[i].index] : UINT8_MAX;

        if (layer == UINT8_MAX)
            continue;
        at_peak[layer] += m->sites[i].at_peak_bytes;
        live[layer] += m->sites[i].live_bytes;
    }
    for (i = 0; i < LAYERS; i++) {
        raise(&p->layers.most[i], at_peak[i]);
        raise(&p->layers.most[i], live[i]);
    }
}

/* An account may tell the tensors of one place apart, which are one layer: what it says of the peak counts too. */
static void add_account(struct picture *p, const struct vt_model *peak)
{
    static const enum vt_category categories[VT_PART_COUNT] = {
        [VT_PART_PARAMETERS] = VT_CATEGORY_PARAMETERS, [VT_PART_GRADIENTS] = VT_CATEGORY_GRADIENTS,
        [VT_PART_OPTIMIZER] = VT_CATEGORY_OPTIMIZER,   [VT_PART_ACTIVATIONS] = VT_CATEGORY_ACTIVATIONS,
        [VT_PART_INPUTS] = VT_CATEGORY_INPUTS,         [VT_PART_OTHER] = VT_CATEGORY_OTHER,
    };
    uint32_t i, j, part;

    for (i = 0; i < peak->device_count; i++)
        for (part = 0; peak->devices[i].record->ordinal == p->device && part < VT_PART_COUNT; part++)
            for (j = 0; j < p->layers.count; j++)
                if (!strcmp(p->layers.names[j], vt_category_name(categories[part])))
                    raise(&p->layers.most[j], peak->devices[i].tensor_part[part]);
}

/* Which event of each interval had the highest sum. */
static bool find_highest(struct picture *p, struct vt_page_replay *r, const struct vt_reading *reading, uint32_t sites,
                         uint64_t *highest)
{
    int64_t *most = malloc(((size_t)r->intervals + 1) * sizeof *most), sum = start(p, r, sites);
    uint64_t number;
    uint32_t site, i;

    for (i = 0; most && i < r->intervals; i++) {
        most[i] = -1;
        highest[i] = UINT64_MAX;
    }
    for (i = 0; i < LAYERS; i++)
        raise(&p->layers.most[i], positive(p->layers.live[i]));
    vt_page_replay_rewind(r);
    for (number = r->first; most && number < r->count; number++) {
        int64_t bytes = vt_page_replay_step(r, reading, number, &site);

        if (!apply(p, sites, site, bytes, &sum))
            continue;
        raise(&p->layers.most[p->layer_of[site]], positive(p->layers.live[p->layer_of[site]]));
        if (sum > most[r->now]) {
            most[r->now] = sum;
            highest[r->now] = number;
        }
    }
    free(most);
    return most != NULL;
}

static void put_layer_points(struct vt_page_buffer *b, struct picture *p, struct vt_page_replay *r,
                             const struct vt_reading *reading, uint32_t sites)
{
    uint64_t *highest = calloc((size_t)r->intervals + 1, sizeof *highest), number, time = 0;
    int64_t sum;
    uint32_t site;

    if (!highest || !find_highest(p, r, reading, sites, highest)) {
        b->failed = true;
        free(highest);
        return;
    }
    sum = start(p, r, sites);
    put_layer_point(b, p, micro(r->from_ns));
    vt_page_replay_rewind(r);
    for (number = r->first; number < r->count; number++) {
        int64_t bytes = vt_page_replay_step(r, reading, number, &site);

        apply(p, sites, site, bytes, &sum);
        if (highest[r->now] == number) {
            time = vt_page_replay_time(r, reading, r->now);
            put_layer_point(b, p, micro(time));
        }
    }
    put_layer_point(b, p, micro(r->until_ns > time ? r->until_ns : time));
    free(highest);
}

static void put_most(struct vt_page_buffer *b, const struct picture *p)
{
    uint32_t i;

    vt_page_put(b, "],\"highest\":[");
    for (i = 0; i < p->layers.count; i++)
        vt_page_put(b, "%llu,", positive(p->layers.most[i]));
    vt_page_put(b, "%llu]}", positive(p->layers.most[LAYERS - 1]));
}

/* peak: the recording's account there; NULL: not known. */
static void put_picture(struct vt_page *page, struct vt_page_buffer *b, struct vt_page_replay *r,
                        const struct vt_model *peak, int device, bool places, bool *any)
{
    struct picture p = {.device = device, .places = places};
    uint32_t i;

    if (name_layers(page, &p)) {
        vt_page_put(b, "%s{\"device\":%d,\"by\":\"%s\",\"names\":[", *any ? ",\n" : "\n", device,
                    places ? "place" : "category");
        *any = true;
        for (i = 0; i < p.layers.count; i++) {
            vt_page_put_json(b, vt_json_chars(p.layers.names[i]));
            vt_page_put(b, ",");
        }
        vt_page_put(b, "null],\"sites\":[");
        for (i = 0; i < p.layers.count; i++)
            vt_page_put(b, "%d,", p.layers.sites[i]);
        vt_page_put(b, "null],\"points\":[");
        begin_most(&p, &page->x.a.model);
        if (peak && !places)
            add_account(&p, peak);
        put_layer_points(b, &p, r, page->x.a.model.reading, page->x.a.model.site_count);
        if (b->used && b->text[b->used - 1] == ',')
            b->used--;
        put_most(b, &p);
    }
    for (i = 0; i < p.layers.count; i++)
        free(p.layers.names[i]);
    free(p.layer_of);
}

void vt_page_put_layers(struct vt_page *page, struct vt_page_buffer *b)
{
    const struct vt_model *m = &page->x.a.model;
    uint32_t devices = m->device_count < DEVICES ? m->device_count : DEVICES, i;
    struct vt_page_replay r;
    struct vt_model peak;
    bool any = false, known;

    vt_page_put(b, ",\n\"layers\":[");
    if (!devices || vt_page_replay_open(&r, m->reading, LAYER_POINTS / devices + 100)) {
        vt_page_put(b, "]");
        return;
    }
    known = !vt_model_build(&peak, m->reading, "peak");
    if (known)
        vt_account_add_parts(&peak, page->x.a.symbols);
    for (i = 0; i < devices && r.count && b->used < VT_PAGE_TIMELINE; i++) {
        put_picture(page, b, &r, known ? &peak : NULL, m->devices[i].record->ordinal, false, &any);
        put_picture(page, b, &r, known ? &peak : NULL, m->devices[i].record->ordinal, true, &any);
    }
    if (known)
        vt_model_free(&peak);
    vt_page_put(b, "]");
    vt_page_replay_free(&r);
}
