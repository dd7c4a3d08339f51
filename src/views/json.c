/*
 * The report as JSON, schema vramtrack-report/1. Every key is always there; what is not known is null, and lists of
 * what is not known are empty. Values are built with jansson one list element at a time and written at once (json_values.c),
 * so a recording with a hundred thousand stack frames needs no hundred thousand objects in memory.
 *
 * Beyond the schema: "moment" (the one shown), "notes" (what is missing from the recording or the symbols), a process's
 * "python" (whose Python frames were read, or why none were) and "nvml" (who was asked about other processes, or why nobody
 * was), a device's "card_bytes" and "driver_reserved_bytes" (the whole card as NVML knows it) and its account's
 * "driver_reserved" (what of that is part of "total_bytes"), a site's "user_frame" (index in "frames") and
 * "holds_tensors" (level driver: a framework hands this memory on), a site's and a failure's "cut" (the outer end of its
 * frames is missing: the stack was as deep as the recording keeps), and an advice's "enough" (alone it would have let the
 * request succeed that failed). Segments are in json_fragmentation.c.
 */
#include <jansson.h>
#include <string.h>

#include "analysis/category.h"
#include "analysis/modules.h"
#include "views/common.h"
#include "views/json.h"

/* Writes `"key":[` , then element(i) for each i, then `]`. */
static void put_list(struct vt_out *out, const char *key, uint32_t count, const struct vt_analysis *a,
                     json_t *(*element)(const struct vt_analysis *a, uint32_t index))
{
    uint32_t i;

    vt_out_format(out, ",\n\"%s\":[", key);
    for (i = 0; i < count && !out->error; i++) {
        vt_out_text(out, i ? ",\n" : "\n");
        vt_json_put(out, element(a, i));
    }
    vt_out_text(out, "]");
}

static json_t *command_line(const struct vt_reading *r)
{
    struct vt_text line = vt_reading_string(r, vt_reading_header(r)->cmdline);
    json_t *list = json_array();
    size_t start, length;

    for (start = 0; start < line.length; start += length + 1) {
        length = strnlen(line.text + start, line.length - start);
        json_array_append_new(list, vt_json_text(line.text + start, length));
    }
    return list;
}

json_t *vt_json_process(const struct vt_model *m)
{
    const struct vt_header *h = vt_reading_header(m->reading);
    json_t *object = json_object();

    set(object, "pid", json_integer(h->pid));
    set(object, "host", vt_json_chars(h->host));
    set(object, "cmdline", command_line(m->reading));
    set(object, "rank", number_if(h->rank >= 0, (uint64_t)h->rank));
    set(object, "local_rank", number_if(h->local_rank >= 0, (uint64_t)h->local_rank));
    set(object, "world_size", number_if(h->world_size >= 0, (uint64_t)h->world_size));
    set(object, "start_unix", seconds(h->start_unix_ns));
    set(object, "duration_s", seconds(m->duration_ns));
    set(object, "end", json_string(vt_end_name(m->end)));
    set(object, "nvml", vt_json_chars_if(vt_reading_chars(m->reading, h->nvml)));
    set(object, "python", vt_json_chars_if(vt_reading_chars(m->reading, h->python)));
    set(object, "exit_code", h->end == VT_END_EXIT ? json_integer(h->exit_code) : json_null());
    return object;
}

static json_t *uuid(const struct vt_device *device)
{
    static const uint8_t none[16];
    const uint8_t *id = device->uuid;
    char string[48] = "GPU-";
    size_t used = 4, i;

    if (!memcmp(id, none, sizeof none))
        return json_null();
    if (device->flags & VT_DEVICE_MIG)
        memcpy(string, "MIG-", 4);
    for (i = 0; i < 16; i++)
        used += (size_t)sprintf(string + used, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", id[i]);
    return json_string(string);
}

static json_t *account(const struct vt_model *m, const struct vt_device_row *d)
{
    json_t *object = json_object(), *libraries = json_array(), *others = json_array(), *library, *other;
    uint32_t i;

    for (i = 0; i < d->library_count; i++) {
        const struct vt_module *module = vt_reading_module(m->reading, d->libraries[i].module);

        library = json_object();
        set(library, "module",
            module ? vt_json_chars(vt_basename(vt_reading_chars(m->reading, module->path))) : json_null());
        set(library, "bytes", number(d->libraries[i].bytes));
        json_array_append_new(libraries, library);
    }
    for (i = 0; i < d->other_count; i++) {
        other = json_object();
        set(other, "pid", json_integer(d->others[i].pid));
        set(other, "name", vt_json_chars_if(d->others[i].name));
        set(other, "bytes", number(d->others[i].bytes));
        json_array_append_new(others, other);
    }
    set(object, "tensors", vt_json_tensors(d));
    set(object, "cached_unused", number_if(d->tensors_known || d->cached_unused, d->cached_unused));
    set(object, "application", number(d->application));
    set(object, "libraries", libraries);
    set(object, "context_and_code", number_if(d->context_known, d->context));
    set(object, "other_processes", others);
    set(object, "driver_reserved", number_if(d->card_known, d->reserved));
    set(object, "unaccounted", number_if(d->unaccounted_known, d->unaccounted));
    set(object, "free", number_if(d->free_known, d->free));
    return object;
}

json_t *vt_json_device(const struct vt_analysis *a, uint32_t i)
{
    const struct vt_device_row *d = &a->model.devices[i];
    json_t *object = json_object();

    set(object, "index", json_integer(d->record->ordinal));
    set(object, "name", vt_json_text(d->record->name, strnlen(d->record->name, sizeof d->record->name)));
    set(object, "uuid", uuid(d->record));
    set(object, "total_bytes", number_if(d->record->total_bytes, d->record->total_bytes));
    set(object, "card_bytes", number_if(d->card_known, d->card_bytes));
    set(object, "driver_reserved_bytes", number_if(d->card_known, d->card_reserved));
    set(object, "account", account(&a->model, d));
    return object;
}

json_t *vt_json_total(const struct vt_analysis *a, uint32_t i)
{
    const struct vt_total_row *row = &a->model.totals[i];
    json_t *object = json_object();

    set(object, "level", json_string(vt_level_name(row->record->level)));
    set(object, "kind", json_string(vt_kind_name(row->record->kind)));
    set(object, "device", json_integer(row->record->device));
    set(object, "live_bytes", number(row->live_bytes));
    set(object, "live_count", number(row->live_count));
    set(object, "peak_bytes", number(row->record->peak_bytes));
    set(object, "requested_bytes", number(row->requested_bytes));
    set(object, "alloc_calls", number(row->record->alloc_calls));
    set(object, "free_calls", number(row->record->free_calls));
    set(object, "failed_allocs", number(row->record->failed_allocs));
    set(object, "failed_frees", number(row->record->failed_frees));
    return object;
}

json_t *vt_json_moment(const struct vt_analysis *a, uint32_t i)
{
    json_t *object = json_object();

    set(object, "name", vt_json_chars(a->model.moments[i].name));
    set(object, "time_s", seconds(a->model.moments[i].time_ns));
    return object;
}

/* Frames in merged order, without our own and those that Python frames stand for. */
json_t *vt_json_frames(const struct vt_trace *trace, int *user, json_t *of)
{
    json_t *list = json_array(), *object;
    uint32_t i;

    *user = -1;
    for (i = 0; i < trace->count; i++) {
        const struct vt_display_frame *f = &trace->frames[i];

        if (f->ours || f->replaced)
            continue;
        if (i == trace->user)
            *user = (int)json_array_size(list);
        object = json_object();
        set(object, "lang", json_string(f->lang == VT_LANG_PYTHON ? "python" : "native"));
        set(object, "function", vt_json_chars(f->nearest ? f->nearest : f->function));
        if (f->nearest)
            set(object, "nearest", json_true());
        if (f->origin)
            set(object, "origin", json_string(f->origin));
        set(object, "file", vt_json_chars(f->file));
        set(object, "line", number_if(f->line, f->line));
        set(object, "module", vt_json_chars(f->module));
        set(object, "offset", number_if(f->lang == VT_LANG_NATIVE, f->offset));
        json_array_append_new(list, object);
    }
    if (of)
        set(of, "cut", json_boolean(trace->cut_native || trace->cut_python));
    return list;
}

static json_t *frames(const struct vt_analysis *a, uint32_t stack, uint32_t python_stack, int *user, json_t *of)
{
    struct vt_trace trace;
    json_t *list;

    vt_view_trace(a, &trace, stack, python_stack);
    list = vt_json_frames(&trace, user, of);
    vt_trace_free(&trace);
    return list;
}

static json_t *growth(const struct vt_growth *g)
{
    json_t *object = json_object();

    set(object, "bytes", json_integer(g->bytes));
    set(object, "allocs", json_integer(g->allocs));
    set(object, "bytes_per_step", g->steps ? json_real(g->bytes_per_step) : json_null());
    set(object, "steps", number_if(g->steps, g->steps));
    set(object, "bytes_per_s", json_real(g->bytes_per_s));
    set(object, "monotonic", json_boolean(g->monotonic));
    return object;
}

static json_t *fates(const struct vt_fate_sum ended[VT_FATE_COUNT])
{
    json_t *object = json_object();

    set(object, "stretch", number(ended[VT_FATE_STRETCH].count));
    set(object, "backward", number(ended[VT_FATE_BACKWARD].count));
    set(object, "step", number(ended[VT_FATE_STEP].count));
    set(object, "later", number(ended[VT_FATE_LATER].count));
    return object;
}

/* The steps that had ended at the moment, and what the program was doing. */
json_t *vt_json_training(const struct vt_model *m)
{
    const struct vt_header *h = vt_reading_header(m->reading);
    bool now = !m->recorded && strcmp(m->moment, "peak");
    json_t *object = json_object();

    set(object, "steps", number(now ? h->steps : vt_model_steps_until(m->reading, m->moment_ns)));
    set(object, "counted_by", json_string(vt_step_source_name(h->step_source)));
    set(object, "phase",
        json_string(vt_phase_name(m->recorded ? m->recorded->phase
                                  : now       ? h->phase
                                              : vt_model_peak_phase(m))));
    return object;
}

/* Whose memory it is; of tensors, what they are to the program, what they amount to, and why. */
static void put_category(json_t *object, const struct vt_analysis *a, const struct vt_site_row *row)
{
    const struct vt_site *s = row->record;
    struct vt_category_split split;
    json_t *bytes;
    unsigned c;

    set(object, "phase", json_string(vt_phase_name(s->phase)));
    set(object, "range", s->range ? vt_json_chars(vt_reading_chars(a->model.reading, s->range)) : json_null());
    set(object, "fates", fates(s->ended));
    if (s->level == VT_LEVEL_DRIVER) {
        set(object, "category", json_string(vt_owner_name(row->owner)));
        return;
    }
    split = vt_category_of(&a->model, row, a->symbols);
    bytes = json_object();
    for (c = 0; c < VT_CATEGORY_COUNT; c++)
        if (split.bytes[c])
            set(bytes, vt_category_name(c), number(split.bytes[c]));
    set(object, "category", json_string(vt_category_name(split.main)));
    set(object, "category_bytes", bytes);
    set(object, "category_reason", json_string(split.reason));
}

json_t *vt_json_site_figures(const struct vt_analysis *a, uint32_t i)
{
    const struct vt_site_row *row = &a->model.sites[i];
    const struct vt_site *s = row->record;
    json_t *object = json_object();

    set(object, "id", json_integer(row->index));
    set(object, "level", json_string(vt_level_name(s->level)));
    set(object, "kind", json_string(vt_kind_name(s->kind)));
    set(object, "device", json_integer(s->device));
    set(object, "api", vt_json_chars(vt_reading_chars(a->model.reading, s->api)));
    set(object, "live_bytes", number(row->live_bytes));
    set(object, "live_count", number(row->live_count));
    set(object, "at_peak_bytes", number(row->at_peak_bytes));
    set(object, "peak_bytes", number(s->peak_bytes));
    set(object, "alloc_calls", number(s->alloc_calls));
    set(object, "free_calls", number(s->free_calls));
    set(object, "total_bytes", number(s->total_bytes));
    set(object, "threads", json_integer(__builtin_popcountll(s->threads)));
    set(object, "streams", json_integer(__builtin_popcountll(s->streams)));
    put_category(object, a, row);
    set(object, "holds_tensors", json_boolean(row->pool));
    set(object, "verdict", vt_json_chars(row->verdict));
    set(object, "growth", growth(&row->growth));
    return object;
}

static json_t *site(const struct vt_analysis *a, uint32_t i)
{
    const struct vt_site *s = a->model.sites[i].record;
    json_t *object = vt_json_site_figures(a, i);
    int user;

    set(object, "frames", frames(a, s->stack, s->python_stack, &user, object));
    set(object, "user_frame", number_if(user >= 0, (uint64_t)user));
    return object;
}

json_t *vt_json_failure(const struct vt_analysis *a, uint32_t i)
{
    const struct vt_failure *f = a->model.failures[i].record;
    const char *api = vt_reading_chars(a->model.reading, f->api);
    json_t *object = json_object();
    int user;

    set(object, "kind", json_string(vt_failure_name(f->kind)));
    set(object, "api", vt_json_chars(api));
    set(object, "code", json_integer(f->code));
    set(object, "code_name", vt_json_chars(vt_code_name(f->code, api)));
    set(object, "count", number(f->count));
    set(object, "requested_bytes", number(f->requested_bytes));
    set(object, "free_bytes", number_if(f->total_bytes, f->free_bytes));
    set(object, "total_bytes", number_if(f->total_bytes, f->total_bytes));
    set(object, "allocated_bytes", number(f->allocated_bytes));
    set(object, "reserved_bytes", number(f->reserved_bytes));
    set(object, "driver_visible", json_boolean(f->driver_visible));
    set(object, "pointer_offset", number_if(f->kind == VT_FAILURE_INTERIOR_POINTER, f->pointer_offset));
    set(object, "frames", frames(a, f->stack, f->python_stack, &user, object));
    set(object, "allocated_at", frames(a, f->allocated_at, f->allocated_python, &user, NULL));
    set(object, "freed_at", frames(a, f->freed_at, f->freed_python, &user, NULL));
    return object;
}

json_t *vt_json_finding(const struct vt_analysis *a, uint32_t index)
{
    const struct vt_finding *f = &a->findings.list[index];
    json_t *object = json_object(), *evidence = json_array(), *advice = json_array(), *sites = json_array(), *entry;
    uint32_t i;

    for (i = 0; i < f->evidence_count; i++)
        json_array_append_new(evidence, vt_json_chars(f->evidence[i]));
    for (i = 0; i < f->advice_count; i++) {
        entry = json_object();
        set(entry, "text", vt_json_chars(f->advice[i].text));
        set(entry, "saves_bytes", number_if(f->advice[i].saves_bytes, f->advice[i].saves_bytes));
        set(entry, "enough", json_boolean(f->advice[i].enough));
        json_array_append_new(advice, entry);
    }
    for (i = 0; i < f->site_count; i++)
        json_array_append_new(sites, json_integer(f->sites[i]));
    set(object, "family", json_string(vt_family_name(f->family)));
    set(object, "title", vt_json_chars(f->title));
    set(object, "evidence", evidence);
    set(object, "advice", advice);
    set(object, "sites", sites);
    set(object, "confidence", json_string(vt_confidence_name(f->confidence)));
    return object;
}

static json_t *note(const struct vt_analysis *a, uint32_t i)
{
    return vt_json_chars(a->model.notes[i]);
}

int vt_json_write(struct vt_reading *reading, const struct vt_report_request *request)
{
    const char *path = request->recording_path ? request->recording_path : vt_reading_name(reading);
    struct vt_analysis a;
    struct vt_out out;
    int error = vt_view_open(&a, reading, request);

    if (error)
        return error;
    vt_out_open(&out, request->fd, false);
    vt_out_text(&out, "{\"schema\":\"vramtrack-report/1\"");
    vt_json_put_key(&out, "recording", *path ? vt_json_chars(path) : json_null());
    vt_json_put_key(&out, "process", vt_json_process(&a.model));
    vt_json_put_key(&out, "moment", vt_json_chars(a.model.moment));
    vt_json_put_key(&out, "training", vt_json_training(&a.model));
    put_list(&out, "devices", a.model.device_count, &a, vt_json_device);
    put_list(&out, "totals", a.model.total_count, &a, vt_json_total);
    put_list(&out, "moments", a.model.moment_count, &a, vt_json_moment);
    put_list(&out, "sites", a.model.site_count, &a, site);
    put_list(&out, "failures", a.model.failure_count, &a, vt_json_failure);
    put_list(&out, "fragmentation", a.model.fragmentation.pool_count, &a,
             request->blocks ? vt_json_fragmentation_with_blocks : vt_json_fragmentation);
    put_list(&out, "allocators", (uint32_t)vt_reading_count(reading, VT_ALLOCATORS), &a, vt_json_allocator);
    put_list(&out, "programs", (uint32_t)vt_reading_count(reading, VT_PROGRAMS), &a, vt_json_program);
    put_list(&out, "findings", a.findings.count, &a, vt_json_finding);
    vt_analysis_take_notes(&a);
    put_list(&out, "notes", a.model.note_count, &a, note);
    vt_out_text(&out, "}\n");
    vt_analysis_close(&a);
    return vt_out_close(&out);
}
