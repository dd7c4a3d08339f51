/*
 * A comparison as a page for a browser; see html.h. Its figures are those of vramtrack-diff/1.
 *
 * The block (schema vramtrack-page/1, "page": "diff", for the page alone) has the keys of vramtrack-diff/1, lists cut where a
 * budget ends, and:
 *
 *   sites    [stack, user, cut, stack before or 0, its user frame, level, kind, api, what, moved, device or null, bytes before,
 *            after, count before, after]: numbers of strings for names; the largest change first
 *            moved: 1 if its lines have changed, 2 if it has other callers, which the stack before shows too
 *   others   what the places hold that found no room, added up
 */
#include <string.h>

#include "views/diff.h"
#include "views/html.h"
#include "views/json.h"

enum { MOVED = 1, OTHER_CALLERS };

static json_t *total(const void *of, uint32_t i)
{
    return vt_json_diff_total(&((const struct vt_diff *)of)->totals[i]);
}

static json_t *rank(const void *of, uint32_t i)
{
    return vt_json_diff_rank(&((const struct vt_diff *)of)->ranks[i]);
}

static unsigned long long shown(uint64_t value)
{
    return value > INT64_MAX ? INT64_MAX : value;
}

/* False: no room. */
static bool put_site(struct vt_page *page, const struct vt_diff *d, const struct vt_diff_site *s)
{
    const struct vt_spot *spot = vt_spots_at(d->places, s->place[1] == VT_NONE ? s->place[0] : s->place[1]);
    const size_t most = VT_PAGE_STACKS - 2 * VT_PAGE_TEXT;
    struct vt_page_stack stack = vt_page_trace(page, &spot->trace, most), before = {.user = -1, .whole = true};
    struct vt_page_buffer *b = &page->sites;

    if (s->moved || s->other_callers)
        before = vt_page_trace(page, &vt_spots_at(d->places, s->place[0])->trace, most);
    if (!stack.whole || !before.whole)
        return false;
    vt_page_put(b, "%s[%u,%d,%d,%u,%d", page->site_count ? ",\n" : "\n", stack.node, stack.user, stack.cut, before.node,
                before.user);
    vt_page_put(b, ",%u", vt_page_string(page, vt_level_name(spot->level)));
    vt_page_put(b, ",%u", vt_page_string(page, vt_kind_name(spot->kind)));
    vt_page_put(b, ",%u", vt_page_string(page, spot->api));
    vt_page_put(b, ",%u,%d", vt_page_string(page, vt_diff_word(s->bytes)),
                s->moved           ? MOVED
                : s->other_callers ? OTHER_CALLERS
                                   : 0);
    if (spot->device == VT_SPOT_ANY)
        vt_page_put(b, ",null");
    else
        vt_page_put(b, ",%d", spot->device);
    vt_page_put(b, ",%llu,%llu,%llu,%llu]", shown(s->bytes[0]), shown(s->bytes[1]), shown(s->count[0]),
                shown(s->count[1]));
    page->site_count++;
    return true;
}

static void add_up(uint64_t *sum, uint64_t more)
{
    *sum = *sum + more < more ? UINT64_MAX : *sum + more;
}

static void put_sites(struct vt_page *page, const struct vt_diff *d)
{
    uint64_t others[2] = {0, 0};
    uint32_t i = 0, left;

    while (i < d->site_count && vt_page_stack_bytes(page) < VT_PAGE_STACKS - 4 * VT_PAGE_TEXT &&
           put_site(page, d, &d->sites[i]))
        i++;
    for (left = d->site_count - i; i < d->site_count; i++) {
        add_up(&others[0], d->sites[i].bytes[0]);
        add_up(&others[1], d->sites[i].bytes[1]);
    }
    vt_page_lacks(page, "sites", left);
    vt_page_put_key(page, "others", json_pack("{s:i,s:o}", "sites", (int)left, "bytes", vt_json_diff_pair(others)));
    vt_page_flush_list(page, "sites", &page->sites);
    vt_page_write_tables(page);
}

static void put_diff(struct vt_page *page, const struct vt_diff *d, const struct vt_diff_view *view)
{
    const uint64_t device[2] = {d->side[0].device_bytes, d->side[1].device_bytes};
    const uint64_t tensor[2] = {d->side[0].tensor_bytes, d->side[1].tensor_bytes};
    const uint64_t rest[2] = {d->side[0].rest, d->side[1].rest};
    bool parts = d->side[0].parts_known && d->side[1].parts_known;

    vt_out_text(&page->x.out, "{\"schema\":\"vramtrack-page/1\",\"page\":\"diff\",\"version\":\"" VT_VERSION "\"");
    vt_page_put_key(page, "by", json_string(vt_diff_by_name(d->by)));
    vt_page_put_key(page, "per_step", json_boolean(d->per_step));
    vt_page_put_key(page, "all_frames", json_boolean(view->all_frames));
    vt_page_put_key(page, "before", vt_json_diff_side(&d->side[0]));
    vt_page_put_key(page, "after", vt_json_diff_side(&d->side[1]));
    vt_page_put_key(page, "device_bytes", vt_json_diff_pair(device));
    vt_page_put_key(page, "tensor_bytes", vt_json_diff_pair(tensor));
    vt_page_put_key(page, "not_compared", vt_json_diff_pair(rest));
    vt_page_put_key(page, "categories", parts ? vt_json_diff_categories(d) : json_null());
    vt_page_put_list(page, "totals", d->total_count, VT_PAGE_LIST, total, d);
    vt_page_put_list(page, "ranks", d->rank_count, VT_PAGE_SKEW, rank, d);
    put_sites(page, d);
}

int vt_diff_html_write(const struct vt_diff *diff, const struct vt_diff_view *view)
{
    struct vt_page page;

    memset(&page, 0, sizeof page);
    vt_page_begin(&page, VT_PAGE_OF_DIFF, view->fd);
    put_diff(&page, diff, view);
    vt_page_end(&page, VT_PAGE_OF_DIFF);
    vt_page_stacks_free(&page);
    return vt_out_close(&page.x.out);
}
