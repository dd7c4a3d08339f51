/*
 * Prometheus' text format, for node_exporter's textfile collector: no times, each metric's lines together, no line per place
 * in the program (places are too many to be labels).
 */
#include <string.h>

#include "analysis/modules.h"
#include "views/export.h"

static const char *const parts[VT_PART_COUNT] = {"parameters",  "gradients", "optimizer",
                                                 "activations", "inputs",    "other"};

static void put_value(struct vt_export *x, const char *text)
{
    const char *at = vt_export_clean(x, text); /* has no newline any more */

    for (; *at; at++) {
        if (*at == '"' || *at == '\\')
            vt_out_text(&x->out, "\\");
        vt_out_bytes(&x->out, at, 1);
    }
}

static void put_head(struct vt_export *x, const char *name, const char *type, const char *help)
{
    vt_out_format(&x->out, "# HELP vramtrack_%s %s\n# TYPE vramtrack_%s %s\n", name, help, name, type);
}

/* The name and the labels that every line has; the caller adds its own, then put_end(). */
static void put_begin(struct vt_export *x, const char *name)
{
    const struct vt_header *h = vt_reading_header(x->a.model.reading);

    vt_out_format(&x->out, "vramtrack_%s{program=\"", name);
    put_value(x, h->program);
    vt_out_format(&x->out, "\",pid=\"%d\"", h->pid);
    if (h->rank >= 0)
        vt_out_format(&x->out, ",rank=\"%d\"", h->rank);
}

static void put_end(struct vt_export *x, uint64_t value)
{
    vt_out_format(&x->out, "} %llu\n", (unsigned long long)value);
}

enum figure { LIVE, COUNT, PEAK, ALLOCATED, ALLOCS, FREES, FAILED };

static uint64_t figure_of(const struct vt_total_row *row, enum figure figure)
{
    switch (figure) {
    case LIVE:
        return row->live_bytes;
    case COUNT:
        return row->live_count;
    case PEAK:
        return row->record->peak_bytes;
    case ALLOCATED:
        return row->record->total_bytes;
    case ALLOCS:
        return row->record->alloc_calls;
    case FREES:
        return row->record->free_calls;
    default:
        return row->record->failed_allocs;
    }
}

static void put_totals(struct vt_export *x)
{
    static const struct {
        const char *name, *type, *help;
    } metrics[] = {
        [LIVE] = {"live_bytes", "gauge", "Bytes in live allocations."},
        [COUNT] = {"live_allocations", "gauge", "Live allocations."},
        [PEAK] = {"peak_bytes", "gauge", "The most that was live at once."},
        [ALLOCATED] = {"allocated_bytes_total", "counter", "Bytes ever allocated."},
        [ALLOCS] = {"allocations_total", "counter", "Allocations."},
        [FREES] = {"frees_total", "counter", "Frees."},
        [FAILED] = {"failed_allocations_total", "counter", "Allocations that were refused."},
    };
    unsigned metric;
    uint32_t i;

    for (metric = 0; metric < sizeof metrics / sizeof metrics[0]; metric++) {
        put_head(x, metrics[metric].name, metrics[metric].type, metrics[metric].help);
        for (i = 0; i < x->a.model.total_count; i++) {
            const struct vt_total_row *row = &x->a.model.totals[i];

            put_begin(x, metrics[metric].name);
            vt_out_format(&x->out, ",level=\"%s\",kind=\"%s\",device=\"%d\"", vt_level_name(row->record->level),
                          vt_kind_name(row->record->kind), row->record->device);
            put_end(x, figure_of(row, (enum figure)metric));
        }
    }
}

static void put_holder(struct vt_export *x, const struct vt_device_row *d, const char *holder, const char *name,
                       bool known, uint64_t bytes)
{
    if (!known)
        return;
    put_begin(x, "device_bytes");
    vt_out_format(&x->out, ",device=\"%d\",holder=\"%s\",name=\"", d->record->ordinal, holder);
    put_value(x, name);
    vt_out_text(&x->out, "\"");
    put_end(x, bytes);
}

/* The modules of an account may share a name, and a line must be the only one with its labels. */
static void put_libraries(struct vt_export *x, const struct vt_device_row *d)
{
    const struct vt_reading *reading = x->a.model.reading;
    uint32_t i;

    for (i = 0; i < d->library_count; i++) {
        const struct vt_module *module = vt_reading_module(reading, d->libraries[i].module);

        put_begin(x, "device_bytes");
        vt_out_format(&x->out, ",device=\"%d\",holder=\"library\",name=\"", d->record->ordinal);
        put_value(x, module ? vt_basename(vt_reading_chars(reading, module->path)) : "");
        vt_out_format(&x->out, "\",module=\"%u\"", d->libraries[i].module);
        put_end(x, d->libraries[i].bytes);
    }
}

static void put_device(struct vt_export *x, const struct vt_device_row *d)
{
    uint64_t others = 0;
    unsigned part;
    uint32_t i;

    for (part = 0; part < VT_PART_COUNT; part++)
        put_holder(x, d, "tensors", parts[part], d->tensors_known, d->tensor_part[part]);
    put_holder(x, d, "cached_unused", "", d->tensors_known || d->cached_unused, d->cached_unused);
    put_holder(x, d, "application", "", true, d->application);
    put_libraries(x, d);
    put_holder(x, d, "context_and_code", "", d->context_known, d->context);
    for (i = 0; i < d->other_count; i++)
        others += d->others[i].bytes;
    put_holder(x, d, "other_processes", "", d->others_known, others);
    put_holder(x, d, "driver_reserved", "", d->card_known, d->reserved);
    put_holder(x, d, "unaccounted", "", d->unaccounted_known, d->unaccounted);
    put_holder(x, d, "free", "", d->free_known, d->free);
}

static void put_devices(struct vt_export *x)
{
    const struct vt_model *m = &x->a.model;
    uint32_t i;

    put_head(x, "device_total_bytes", "gauge", "Memory of the device as CUDA offers it.");
    for (i = 0; i < m->device_count; i++)
        if (m->devices[i].record->total_bytes) {
            put_begin(x, "device_total_bytes");
            vt_out_format(&x->out, ",device=\"%d\",name=\"", m->devices[i].record->ordinal);
            put_value(x, strndupa(m->devices[i].record->name, sizeof m->devices[i].record->name));
            vt_out_text(&x->out, "\"");
            put_end(x, m->devices[i].record->total_bytes);
        }
    put_head(x, "device_bytes", "gauge", "Who holds the memory of the device; what is not known is left out.");
    for (i = 0; i < m->device_count; i++)
        put_device(x, &m->devices[i]);
}

static void put_pools(struct vt_export *x)
{
    static const char *const names[] = {"reserved", "allocated", "free", "largest_free"};
    const struct vt_fragmentation *f = &x->a.model.fragmentation;
    unsigned what;
    uint32_t i;

    put_head(x, "segment_bytes", "gauge", "Memory that frameworks have taken to hand on, and what of it is in use.");
    for (i = 0; i < f->pool_count; i++)
        for (what = 0; what < 4; what++) {
            const struct vt_pools *p = &f->pools[i];

            if (what >= 2 && !p->known)
                continue;
            put_begin(x, "segment_bytes");
            vt_out_format(&x->out, ",device=\"%d\",what=\"%s\"", p->device, names[what]);
            put_end(x, what == 0 ? p->reserved : what == 1 ? p->allocated : what == 2 ? p->free : p->largest_free);
        }
}

static void put_process(struct vt_export *x)
{
    const struct vt_model *m = &x->a.model;
    unsigned kind;
    uint32_t i;

    put_head(x, "failures_total", "counter", "Calls that failed, and frees that were wrong.");
    for (kind = VT_FAILURE_OOM; kind < VT_FAILURE_KIND_COUNT; kind++) { /* a pending one is read as an oom */
        uint64_t count = 0;

        for (i = 0; i < m->failure_count; i++)
            if (m->failures[i].record->kind == kind ||
                (kind == VT_FAILURE_OOM && m->failures[i].record->kind == VT_FAILURE_PENDING))
                count += m->failures[i].record->count;
        put_begin(x, "failures_total");
        vt_out_format(&x->out, ",kind=\"%s\"", vt_failure_name(kind));
        put_end(x, count);
    }
    put_head(x, "steps_total", "counter", "Training steps that have ended.");
    put_begin(x, "steps_total");
    put_end(x, vt_reading_header(m->reading)->steps);
    put_head(x, "running", "gauge", "1 while the process lives.");
    put_begin(x, "running");
    put_end(x, m->end == VT_PROCESS_RUNNING);
}

int vt_prometheus_write(struct vt_reading *reading, const struct vt_export_request *request)
{
    struct vt_export x;
    int error = vt_export_open(&x, reading, request);

    if (error)
        return error;
    put_totals(&x);
    put_devices(&x);
    put_pools(&x);
    put_process(&x);
    return vt_export_close(&x);
}
