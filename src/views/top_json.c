/*
 * `vramtrack top --json`: schema vramtrack-top/1, one object in one line per refresh. What the report has too is made by the
 * same functions and has the same keys: "process", "training", "totals", and the elements of "devices", "failures", "moments"
 * and "sites", whose "verdict" is null until vt_top_judge(). Of a site come in addition its "place" (the line that the screen shows), its "share", and what changed over
 * the last refreshes (null at the first one).
 */
#include <errno.h>
#include <time.h>

#include "analysis/format.h"
#include "views/json.h"
#include "views/top.h"

static int sink(const char *buffer, size_t bytes, void *out)
{
    vt_out_bytes(out, buffer, bytes);
    return 0;
}

/* Writes a value in a line and lets go of it. */
static int put_line(json_t *value, int fd)
{
    struct vt_out out;

    vt_out_open(&out, fd, false);
    if (!value || json_dump_callback(value, sink, &out, JSON_COMPACT))
        out.error = out.error ? out.error : -ENOMEM;
    json_decref(value);
    vt_out_text(&out, "\n");
    return vt_out_close(&out);
}

static json_t *list(const struct vt_analysis *a, uint32_t count,
                    json_t *(*element)(const struct vt_analysis *, uint32_t))
{
    json_t *array = json_array();

    for (uint32_t i = 0; i < count; i++)
        json_array_append_new(array, element(a, i));
    return array;
}

static json_t *site(struct vt_top *top, const struct vt_top_row *row)
{
    json_t *object = vt_json_site_figures(vt_top_analysis(top), row->row);
    bool rates = vt_top_has_rates(top);

    set(object, "place", vt_json_chars(vt_top_place(top, row->site)));
    set(object, "share", json_real(row->share));
    set(object, "allocs_per_s", rates ? json_real(row->allocs_per_s) : json_null());
    set(object, "live_change_bytes", rates ? json_integer(row->growth) : json_null());
    return object;
}

static json_t *unix_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return json_real((double)now.tv_sec + (double)now.tv_nsec / 1e9);
}

int vt_top_json(struct vt_top *top, unsigned most, int fd)
{
    const struct vt_analysis *a = vt_top_analysis(top);
    const struct vt_model *m = &a->model;
    const struct vt_top_row *rows;
    uint32_t unnamed, count = vt_top_rows(top, VT_TOP_LIVE, NULL, false, &rows, &unnamed);
    json_t *object = json_object(), *sites = json_array();

    for (uint32_t i = 0; i < count && i < most; i++)
        json_array_append_new(sites, site(top, &rows[i]));
    set(object, "schema", json_string("vramtrack-top/1"));
    set(object, "time_unix", unix_seconds());
    set(object, "recording", vt_json_chars(vt_top_path(top)));
    set(object, "process", vt_json_process(m));
    set(object, "program", vt_json_chars(vt_reading_header(m->reading)->program));
    set(object, "training", vt_json_training(m));
    set(object, "events", number(vt_top_events(top)));
    set(object, "events_while_read", number(vt_top_torn(top)));
    set(object, "devices", list(a, m->device_count, vt_json_device));
    set(object, "totals", list(a, m->total_count, vt_json_total));
    set(object, "moments", list(a, m->moment_count, vt_json_moment));
    set(object, "failures", list(a, m->failure_count, vt_json_failure));
    set(object, "places", number(count));
    set(object, "sites", sites);
    return put_line(object, fd);
}

static json_t *process(const struct vt_top_process *p)
{
    const struct vt_header *h = p->reading ? vt_reading_header(p->reading) : NULL;
    uint64_t live[VT_LEVEL_COUNT] = {0, 0}, peak[VT_LEVEL_COUNT] = {0, 0}, i,
             count = p->reading ? vt_reading_count(p->reading, VT_SCOPES) : 0;
    json_t *object = json_object();

    for (i = 0; i < count; i++) {
        const struct vt_scope *scope = vt_reading_scope(p->reading, i);

        if (scope && scope->class_ == VT_CLASS_DEVICE && scope->level < VT_LEVEL_COUNT) {
            live[scope->level] += scope->live_bytes;
            peak[scope->level] += scope->peak_bytes;
        }
    }
    set(object, "pid", json_integer(p->pid));
    set(object, "recording", vt_json_chars(p->path));
    set(object, "problem", vt_json_chars(p->problem));
    set(object, "program", vt_json_chars(h ? h->program : NULL));
    set(object, "rank", number_if(h && h->rank >= 0, h ? (uint64_t)h->rank : 0));
    set(object, "ooms", number_if(h, h ? h->oom_count : 0));
    set(object, "driver_live_bytes", number_if(h, live[VT_LEVEL_DRIVER]));
    set(object, "driver_peak_bytes", number_if(h, peak[VT_LEVEL_DRIVER]));
    set(object, "tensor_live_bytes", number_if(h, live[VT_LEVEL_TENSOR]));
    set(object, "tensor_peak_bytes", number_if(h, peak[VT_LEVEL_TENSOR]));
    return object;
}

int vt_top_json_processes(const struct vt_top_process *processes, uint32_t count, int fd)
{
    json_t *object = json_object(), *array = json_array();

    for (uint32_t i = 0; i < count; i++)
        json_array_append_new(array, process(&processes[i]));
    set(object, "schema", json_string("vramtrack-top/1"));
    set(object, "time_unix", unix_seconds());
    set(object, "processes", array);
    return put_line(object, fd);
}
