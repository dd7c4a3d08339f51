/*
 * The comparison as JSON, schema vramtrack-diff/1: every key is always there, keys are only ever added. Pairs are objects
 * with "before", "after" and "change" (after less before). See docs/vramtrack-diff.1.
 */
#include "views/common.h"
#include "views/diff.h"
#include "views/json.h"

json_t *vt_json_diff_pair(const uint64_t bytes[2])
{
    json_t *object = json_object();

    set(object, "before", number(bytes[0]));
    set(object, "after", number(bytes[1]));
    set(object, "change", json_integer(vt_diff_change(bytes)));
    return object;
}

json_t *vt_json_diff_side(const struct vt_diff_side *s)
{
    json_t *object = json_object();

    set(object, "path", vt_json_chars(s->path));
    set(object, "program", vt_json_chars(s->program));
    set(object, "recordings", json_integer(s->recordings));
    set(object, "pid", s->recordings == 1 ? json_integer(s->pid) : json_null());
    set(object, "host", s->recordings == 1 ? vt_json_chars(s->host) : json_null());
    set(object, "rank", s->recordings == 1 && s->rank >= 0 ? json_integer(s->rank) : json_null());
    set(object, "moment", s->recordings == 1 ? vt_json_chars(s->moment) : json_null());
    set(object, "steps", number(s->steps));
    set(object, "missing", s->incomplete ? vt_json_chars(s->missing) : json_null());
    set(object, "incomplete_recordings", json_integer(s->incomplete));
    set(object, "unreadable_files", json_integer(s->unreadable));
    return object;
}

static json_t *device_number(int device)
{
    return device == VT_SPOT_ANY ? json_null() : json_integer(device);
}

json_t *vt_json_diff_total(const struct vt_diff_total *t)
{
    json_t *object = json_object();

    set(object, "level", json_string(vt_level_name(t->level)));
    set(object, "kind", json_string(vt_kind_name(t->kind)));
    set(object, "device", device_number(t->device));
    set(object, "bytes", vt_json_diff_pair(t->bytes));
    set(object, "count", vt_json_diff_pair(t->count));
    return object;
}

json_t *vt_json_diff_categories(const struct vt_diff *d)
{
    json_t *object = json_object();
    unsigned i;

    for (i = 0; i < VT_DIFF_PARTS; i++) {
        const uint64_t bytes[2] = {d->side[0].part[i], d->side[1].part[i]};

        set(object, vt_diff_part_name(i), vt_json_diff_pair(bytes));
    }
    return object;
}

json_t *vt_json_diff_rank(const struct vt_diff_rank *r)
{
    json_t *object = json_object();

    set(object, "rank", json_integer(r->rank));
    set(object, "before", number_if(r->present[0], r->bytes[0]));
    set(object, "after", number_if(r->present[1], r->bytes[1]));
    set(object, "change", json_integer(vt_diff_change(r->bytes)));
    return object;
}

static json_t *site(const struct vt_diff *d, const struct vt_diff_site *s)
{
    const struct vt_spot *p = vt_spots_at(d->places, s->place[1] == VT_NONE ? s->place[0] : s->place[1]);
    json_t *object = json_object();
    int user;

    set(object, "what", json_string(vt_diff_word(s->bytes)));
    set(object, "moved", json_boolean(s->moved));
    set(object, "other_callers", json_boolean(s->other_callers));
    set(object, "level", json_string(vt_level_name(p->level)));
    set(object, "kind", json_string(vt_kind_name(p->kind)));
    set(object, "device", device_number(p->device));
    set(object, "api", vt_json_chars(p->api));
    set(object, "bytes", vt_json_diff_pair(s->bytes));
    set(object, "count", vt_json_diff_pair(s->count));
    set(object, "frames", vt_json_frames(&p->trace, &user, object));
    set(object, "user_frame", number_if(user >= 0, (uint64_t)user));
    set(object, "frames_before",
        s->moved || s->other_callers ? vt_json_frames(&vt_spots_at(d->places, s->place[0])->trace, &user, NULL)
                                     : json_null());
    return object;
}

static void begin_list(struct vt_out *out, const char *key)
{
    vt_out_format(out, ",\n\"%s\":[", key);
}

static void put_element(struct vt_out *out, uint32_t index, json_t *value)
{
    vt_out_text(out, index ? ",\n" : "\n");
    vt_json_put(out, value);
}

int vt_diff_json_write(const struct vt_diff *d, const struct vt_diff_view *view)
{
    const uint64_t device[2] = {d->side[0].device_bytes, d->side[1].device_bytes};
    const uint64_t tensor[2] = {d->side[0].tensor_bytes, d->side[1].tensor_bytes};
    const uint64_t rest[2] = {d->side[0].rest, d->side[1].rest};
    struct vt_out out;
    uint32_t i;

    vt_out_open(&out, view->fd, false);
    vt_out_text(&out, "{\"schema\":\"vramtrack-diff/1\"");
    vt_json_put_key(&out, "by", json_string(vt_diff_by_name(d->by)));
    vt_json_put_key(&out, "per_step", json_boolean(d->per_step));
    vt_json_put_key(&out, "before", vt_json_diff_side(&d->side[0]));
    vt_json_put_key(&out, "after", vt_json_diff_side(&d->side[1]));
    vt_json_put_key(&out, "device_bytes", vt_json_diff_pair(device));
    vt_json_put_key(&out, "tensor_bytes", vt_json_diff_pair(tensor));
    vt_json_put_key(&out, "categories",
                    d->side[0].parts_known && d->side[1].parts_known ? vt_json_diff_categories(d) : json_null());
    begin_list(&out, "totals");
    for (i = 0; i < d->total_count && !out.error; i++)
        put_element(&out, i, vt_json_diff_total(&d->totals[i]));
    vt_out_text(&out, "]");
    begin_list(&out, "ranks");
    for (i = 0; i < d->rank_count && !out.error; i++)
        put_element(&out, i, vt_json_diff_rank(&d->ranks[i]));
    vt_out_text(&out, "]");
    begin_list(&out, "sites");
    for (i = 0; i < d->site_count && !out.error; i++)
        put_element(&out, i, site(d, &d->sites[i]));
    vt_out_text(&out, "]");
    vt_json_put_key(&out, "not_compared", vt_json_diff_pair(rest));
    vt_out_text(&out, "}\n");
    return vt_out_close(&out);
}
