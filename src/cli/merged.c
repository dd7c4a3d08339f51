/*
 * Merging happens at the level of what a person sees: places are equal if function, file and line are (or, without
 * symbols, module and offset), because the ranks of a job run the same program at different addresses.
 */
#include "cli/merged.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "analysis/format.h"
#include "analysis/model.h"
#include "analysis/stack.h"
#include "cli/cli.h"
#include "recording/reader.h"
#include "views/out.h"

#define PLACE_BYTES 512
#define PROCESS_LINES 9
#define PLACE_LINES 9
#define SITES_PER_PROCESS 64 /* largest first: the rest can't reach the top of the merged list by much */

struct process {
    const struct vt_header *header;
    enum vt_process_end end;
    uint64_t peak, held; /* of device memory: at its highest point; at the moment shown */
    bool oom;
};

struct place {
    char *text;
    uint64_t bytes, count;
    size_t processes, last; /* how many, and which one counted last */
};

struct merged {
    struct process *process;
    size_t processes;
    struct place *place;
    size_t places;
    struct vt_symbols *symbols; /* one for all: the processes have most of their files in common */
};

/* The moment to show: the first out-of-memory, if there was one; else the default. `name` has room for 33 bytes. */
static const char *choose_moment(struct vt_reading *reading, char *name)
{
    for (uint64_t i = 0; i < vt_reading_count(reading, VT_MOMENTS); i++) {
        const struct vt_moment *moment = vt_reading_moment(reading, i);

        if (!moment || moment->kind != VT_MOMENT_OOM || !moment->name[0])
            continue;
        snprintf(name, 33, "%.32s", moment->name);
        return name;
    }
    return NULL;
}

static bool is_device_memory(unsigned kind)
{
    return vt_kind_is_memory(kind) && vt_class_of(kind) != VT_CLASS_HOST;
}

static struct process summarize(struct vt_reading *reading, const struct vt_model *model)
{
    struct process process = {.header = vt_reading_header(reading), .end = model->end};

    for (uint32_t i = 0; i < model->total_count; i++) {
        const struct vt_total *total = model->totals[i].record;

        if (total->level == VT_LEVEL_DRIVER && is_device_memory(total->kind))
            process.held += model->totals[i].live_bytes;
    }
    for (uint64_t i = 0; i < vt_reading_count(reading, VT_SCOPES); i++) {
        const struct vt_scope *scope = vt_reading_scope(reading, i);

        if (scope && scope->level == VT_LEVEL_DRIVER &&
            (scope->class_ == VT_CLASS_DEVICE || scope->class_ == VT_CLASS_MANAGED))
            process.peak += scope->peak_bytes;
    }
    for (uint32_t i = 0; i < model->failure_count; i++)
        process.oom |= vt_failure_is_oom(model->failures[i].record->kind);
    return process;
}

static char *describe(const struct vt_reading *reading, struct vt_symbols *symbols, const struct vt_site *site)
{
    char place[PLACE_BYTES];
    struct vt_trace trace;

    if (vt_trace_build(&trace, reading, symbols, site->stack, site->python_stack))
        return NULL;
    vt_format_place(place, sizeof(place), vt_trace_user(&trace));
    vt_trace_free(&trace);
    return strdup(place);
}

/* Takes `text` over. */
static int add_place(struct merged *merged, char *text, uint64_t bytes, uint64_t count, size_t process)
{
    struct place *place = NULL, *grown;

    if (!text)
        return -ENOMEM;
    for (size_t i = 0; i < merged->places && !place; i++)
        if (!strcmp(merged->place[i].text, text))
            place = &merged->place[i];
    if (place) {
        free(text);
    } else {
        grown = realloc(merged->place, (merged->places + 1) * sizeof(*grown));
        if (!grown) {
            free(text);
            return -ENOMEM;
        }
        merged->place = grown;
        place = &grown[merged->places++];
        *place = (struct place){.text = text, .last = process, .processes = 1};
    }
    place->processes += place->last != process;
    place->last = process;
    place->bytes += bytes;
    place->count += count;
    return 0;
}

static int add_sites(struct merged *merged, struct vt_reading *reading, const struct vt_model *model, size_t process)
{
    /* A process that freed everything says most by what it held at its peak. */
    bool at_peak = !merged->process[process].held;
    uint32_t left = SITES_PER_PROCESS;
    int error = 0;

    for (uint32_t i = 0; i < model->site_count && left && !error; i++) {
        const struct vt_site_row *site = &model->sites[i];
        uint64_t bytes = at_peak ? site->at_peak_bytes : site->live_bytes;

        if (!bytes || site->record->level != VT_LEVEL_DRIVER || !is_device_memory(site->record->kind))
            continue;
        left--;
        error = add_place(merged, describe(reading, merged->symbols, site->record), bytes,
                          at_peak ? site->at_peak_count : site->live_count, process);
    }
    return error;
}

static int add_process(struct merged *merged, struct vt_reading *reading)
{
    struct vt_model model;
    char name[33];
    int error = vt_model_build(&model, reading, choose_moment(reading, name));

    if (error)
        return error;
    merged->process[merged->processes] = summarize(reading, &model);
    merged->processes++;
    error = add_sites(merged, reading, &model, merged->processes - 1);
    vt_model_free(&model);
    return error;
}

static int largest_process(const void *a, const void *b)
{
    const struct process *x = a, *y = b;

    if (x->oom != y->oom)
        return x->oom ? -1 : 1;
    return x->peak < y->peak ? 1 : x->peak > y->peak ? -1 : 0;
}

static int largest_place(const void *a, const void *b)
{
    const struct place *x = a, *y = b;

    return x->bytes < y->bytes ? 1 : x->bytes > y->bytes ? -1 : 0;
}

static const char *end_text(const struct process *process)
{
    if (process->oom)
        return "ran out of memory";
    return process->end == VT_PROCESS_EXIT ? "ended" : process->end == VT_PROCESS_KILLED ? "was killed" : "still runs";
}

static void write_process(struct vt_out *out, const struct process *process)
{
    char peak[VT_FORMAT_BYTES], held[VT_FORMAT_BYTES];

    vt_out_text(out, "  ");
    if (process->header->rank >= 0)
        vt_out_format(out, "rank %-4d ", process->header->rank);
    vt_out_format(out, "pid %-8d peak %10s, then %10s  ", process->header->pid, vt_format_bytes(peak, process->peak),
                  vt_format_bytes(held, process->held));
    vt_out_colour(out, process->oom ? VT_RED : VT_PLAIN);
    vt_out_text(out, end_text(process));
    vt_out_colour(out, VT_PLAIN);
    vt_out_text(out, ": ");
    vt_out_name(out, process->header->program, strlen(process->header->program), 40);
    vt_out_text(out, "\n");
}

static void write_place(struct vt_out *out, const struct place *place)
{
    char bytes[VT_FORMAT_BYTES];

    vt_out_format(out, "  %10s in %llu, %zu process%s  ", vt_format_bytes(bytes, place->bytes),
                  (unsigned long long)place->count, place->processes, place->processes == 1 ? "" : "es");
    vt_out_name(out, place->text, strlen(place->text), 80);
    vt_out_text(out, "\n");
}

static int write_merged(struct merged *merged, const char *directory)
{
    size_t ooms = 0;
    struct vt_out out;

    for (size_t i = 0; i < merged->processes; i++)
        ooms += merged->process[i].oom;
    qsort(merged->process, merged->processes, sizeof(*merged->process), largest_process);
    if (merged->places)
        qsort(merged->place, merged->places, sizeof(*merged->place), largest_place);

    vt_out_open(&out, STDERR_FILENO, vt_wants_colour(STDERR_FILENO));
    vt_out_format(&out, "vramtrack: %zu processes used the GPU", merged->processes);
    if (ooms)
        vt_out_format(&out, "; %zu ran out of memory", ooms);
    vt_out_text(&out, "\n");
    for (size_t i = 0; i < merged->processes && i < PROCESS_LINES; i++)
        write_process(&out, &merged->process[i]);
    if (merged->processes > PROCESS_LINES)
        vt_out_format(&out, "  %zu more\n", merged->processes - PROCESS_LINES);
    vt_out_text(&out, "vramtrack: what held it, over all of them\n");
    for (size_t i = 0; i < merged->places && i < PLACE_LINES; i++)
        write_place(&out, &merged->place[i]);
    if (merged->places > PLACE_LINES)
        vt_out_format(&out, "  %zu more\n", merged->places - PLACE_LINES);
    vt_out_text(&out, "vramtrack: next: vramtrack report --all ");
    vt_out_name(&out, directory, strlen(directory), 0);
    vt_out_text(&out, "\n");
    return vt_out_close(&out);
}

int vt_merged_write(struct vt_reading *const *readings, size_t count, const char *directory)
{
    struct merged merged = {.process = calloc(count, sizeof(struct process)), .symbols = vt_symbols_open()};
    int error = merged.process && merged.symbols ? 0 : -ENOMEM;

    for (size_t i = 0; i < count && !error; i++)
        error = add_process(&merged, readings[i]);
    if (!error)
        error = write_merged(&merged, directory);
    for (size_t i = 0; i < merged.places; i++)
        free(merged.place[i].text);
    if (merged.symbols)
        vt_symbols_close(merged.symbols);
    free(merged.place);
    free(merged.process);
    return error;
}
