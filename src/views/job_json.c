/*
 * The merged report as JSON, schema vramtrack-job/1: every key is always there, keys are only ever added. See
 * docs/vramtrack-report.1.
 */
#include "views/job.h"

#include <stdio.h>
#include <string.h>

#include "views/common.h"
#include "views/json.h"

static json_t *uuid(const uint8_t *id)
{
    static const uint8_t none[16];
    char string[40];
    size_t used = 0, i;

    if (!memcmp(id, none, sizeof none))
        return json_null();
    for (i = 0; i < 16; i++)
        used += (size_t)sprintf(string + used, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", id[i]);
    return json_string(string);
}

static json_t *devices(const struct vt_job_rank *r)
{
    json_t *list = json_array(), *object;
    uint32_t i;

    for (i = 0; i < r->device_count; i++) {
        object = json_object();
        set(object, "index", json_integer(r->devices[i].ordinal));
        set(object, "uuid", uuid(r->devices[i].uuid));
        set(object, "main", json_boolean(i == r->main));
        set(object, "peak_bytes", number(r->devices[i].peak));
        set(object, "live_bytes", number(r->devices[i].live));
        set(object, "context_bytes", number_if(r->devices[i].context_known, r->devices[i].context));
        json_array_append_new(list, object);
    }
    return list;
}

static json_t *categories(const uint64_t part[VT_PART_COUNT])
{
    static const char *const names[VT_PART_COUNT] = {
        [VT_PART_PARAMETERS] = "parameters",   [VT_PART_GRADIENTS] = "gradients", [VT_PART_OPTIMIZER] = "optimizer",
        [VT_PART_ACTIVATIONS] = "activations", [VT_PART_INPUTS] = "inputs",       [VT_PART_OTHER] = "other"};
    json_t *object = json_object();
    unsigned i;

    for (i = 0; i < VT_PART_COUNT; i++)
        set(object, names[i], number(part[i]));
    return object;
}

/* What the table shows; null: no tensors are known, so all of it is one. */
static json_t *breakdown(const struct vt_job_rank *r)
{
    const struct vt_job_parts *p = &r->parts;
    json_t *object;

    if (!p->known)
        return json_null();
    object = json_object();
    set(object, "moment", p->when == VT_JOB_AT_PEAK ? json_string("peak") : vt_json_chars(r->moment));
    set(object, "bytes", number(p->bytes));
    set(object, "categories", categories(p->part));
    set(object, "cached", number(p->cached));
    set(object, "not_tensors", number(p->rest));
    return object;
}

json_t *vt_json_job_process(const struct vt_job_rank *r)
{
    json_t *object = json_object();

    set(object, "rank", number_if(r->rank >= 0, (uint64_t)r->rank));
    set(object, "local_rank", number_if(r->local_rank >= 0, (uint64_t)r->local_rank));
    set(object, "host", vt_json_chars(r->host));
    set(object, "pid", json_integer(r->pid));
    set(object, "program", vt_json_chars(r->program));
    set(object, "recording", vt_json_chars(r->path));
    set(object, "moment", vt_json_chars(r->moment));
    set(object, "device", r->main == VT_NONE ? json_null() : json_integer(r->devices[r->main].ordinal));
    set(object, "devices", devices(r));
    set(object, "peak_bytes", number(r->peak));
    set(object, "live_bytes", number(r->live));
    set(object, "categories", r->tensors_known ? categories(r->part) : json_null());
    set(object, "cached_unused", number_if(r->tensors_known, r->cached));
    set(object, "breakdown", breakdown(r));
    set(object, "steps", number(r->steps));
    set(object, "end", json_string(vt_end_name(r->end)));
    set(object, "exit_code", r->end == VT_PROCESS_EXIT ? json_integer(r->exit_code) : json_null());
    set(object, "missing", r->missing[0] ? vt_json_chars(r->missing) : json_null());
    set(object, "end_words", vt_json_chars(r->words));
    set(object, "out_of_memory", json_boolean(r->oom));
    set(object, "finding", vt_json_chars(r->finding));
    return object;
}

static void set_place(json_t *object, const struct vt_job *job, uint32_t index)
{
    const struct vt_spot *p = vt_spots_at(job->places, index);
    int user;

    set(object, "level", json_string(vt_level_name(p->level)));
    set(object, "kind", json_string(vt_kind_name(p->kind)));
    set(object, "api", vt_json_chars(p->api));
    set(object, "frames", vt_json_frames(&p->trace, &user, object));
    set(object, "user_frame", number_if(user >= 0, (uint64_t)user));
}

/* Who it is, where there may be no rank: the index in "ranks". */
static void set_who(json_t *object, const struct vt_job *job, const char *key, uint32_t index)
{
    set(object, key, json_integer(job->ranks[index].rank));
}

static json_t *skew(const struct vt_job *job, const struct vt_job_skew *s)
{
    json_t *object = json_object(), *sites = json_array(), *site;
    uint32_t i;

    set_who(object, job, "rank", s->rank);
    set_who(object, job, "median_rank", s->against);
    set(object, "measure", json_string(vt_job_measure_name(s->measure)));
    set(object, "confidence", json_string(vt_confidence_name(s->confidence)));
    set(object, "bytes", number(s->bytes[1]));
    set(object, "median_bytes", number(s->bytes[0]));
    set(object, "difference", json_integer((json_int_t)(s->bytes[1] - s->bytes[0])));
    for (i = 0; i < s->difference_count; i++) {
        const struct vt_job_difference *d = &s->differences[i];

        site = json_object();
        set(site, "bytes", number(d->bytes[1]));
        set(site, "median_bytes", number(d->bytes[0]));
        set(site, "difference", json_integer((json_int_t)(d->bytes[1] - d->bytes[0])));
        set(site, "count", number(d->count[1]));
        set(site, "median_count", number(d->count[0]));
        set_place(site, job, d->place);
        json_array_append_new(sites, site);
    }
    set(object, "sites", sites);
    set(object, "rest", json_integer(s->rest));
    return object;
}

static json_t *held(const struct vt_job *job, const struct vt_job_place *h)
{
    json_t *object = json_object();

    set(object, "at_peak_bytes", number(h->sum));
    set(object, "median_bytes", number(h->median));
    set(object, "most_bytes", number(h->most));
    set_who(object, job, "most_rank", h->most_rank);
    set(object, "processes", json_integer(h->ranks));
    set_place(object, job, h->place);
    return object;
}

json_t *vt_json_job_finding(const struct vt_job *job, const struct vt_job_finding *f)
{
    json_t *object = json_object(), *evidence = json_array(), *ranks = json_array(), *advice = json_array();
    uint32_t i;

    for (i = 0; i < f->evidence_count; i++)
        json_array_append_new(evidence, vt_json_chars(f->evidence[i]));
    for (i = 0; i < f->rank_count; i++)
        json_array_append_new(ranks, json_integer(job->ranks[f->ranks[i]].rank));
    if (f->advice)
        json_array_append_new(advice, vt_json_chars(f->advice));
    set(object, "family", json_string(vt_job_family_name(f->family)));
    set(object, "title", vt_json_chars(f->title));
    set(object, "evidence", evidence);
    set(object, "advice", advice);
    set(object, "ranks", ranks);
    set(object, "confidence", json_string(vt_confidence_name(f->confidence)));
    return object;
}

static void put_processes(struct vt_out *out, const struct vt_job *job, const char *key, uint32_t first, uint32_t end)
{
    uint32_t i;

    vt_out_format(out, ",\n\"%s\":[", key);
    for (i = first; i < end && !out->error; i++) {
        vt_out_text(out, i > first ? ",\n" : "\n");
        vt_json_put(out, vt_json_job_process(&job->ranks[i]));
    }
    vt_out_text(out, "]");
}

#define PUT_LIST(out, key, count, element)       \
    do {                                         \
        vt_out_format(out, ",\n\"%s\":[", key);  \
        for (uint32_t i = 0; i < (count); i++) { \
            vt_out_text(out, i ? ",\n" : "\n");  \
            vt_json_put(out, element);           \
        }                                        \
        vt_out_text(out, "]");                   \
    } while (0)

int vt_job_json_write(const struct vt_job *job, const struct vt_job_view *view)
{
    uint32_t median = job->median[VT_JOB_PEAK];
    int32_t world = vt_job_world_size(job);
    struct vt_out out;

    vt_out_open(&out, view->fd, false);
    vt_out_text(&out, "{\"schema\":\"vramtrack-job/1\"");
    vt_json_put_key(&out, "directory", vt_json_chars(view->directory));
    vt_json_put_key(&out, "other_recordings", number(view->others));
    vt_json_put_key(&out, "world_size", number_if(world >= 0, (uint64_t)world));
    vt_json_put_key(&out, "median_rank", median == VT_NONE ? json_null() : json_integer(job->ranks[median].rank));
    put_processes(&out, job, "ranks", 0, job->process_count);
    put_processes(&out, job, "helpers", job->process_count, job->rank_count);
    PUT_LIST(&out, "skew", job->skew_count, skew(job, &job->skews[i]));
    PUT_LIST(&out, "sites", job->held_count, held(job, &job->held[i]));
    PUT_LIST(&out, "findings", job->finding_count, vt_json_job_finding(job, &job->findings[i]));
    PUT_LIST(&out, "notes", job->note_count, vt_json_chars(job->notes[i]));
    vt_json_put_key(&out, "unreadable_files", json_integer(job->unreadable));
    vt_json_put_key(&out, "complete",
                    json_boolean(!vt_spots_full(job->places) && !job->incomplete && !job->unreadable));
    vt_out_text(&out, "}\n");
    return vt_out_close(&out);
}
