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

#include "analysis/findings.h"
#include "analysis/format.h"
#include "analysis/model.h"
#include "analysis/stack.h"
#include "cli/cli.h"
#include "cli/progress.h"
#include "recording/reader.h"
#include "views/out.h"

#define PLACE_BYTES 512
#define PROCESS_LINES 6 /* two lines each at most */
#define PLACE_LINES 6
#define SITES_PER_PROCESS 64 /* largest first: the rest can't reach the top of the merged list by much */
#define PREFIX "vramtrack: "

struct process {
    const struct vt_header *header;
    enum vt_process_end end;
    char words[VT_END_WORDS]; /* how it ended */
    char *finding;            /* the first loud one; NULL: none */
    uint64_t peak, held;      /* of device memory: at its highest point; at the moment shown */
    uint64_t start_ns, end_ns;
    bool oom;
};

/* A GPU as all processes see it: ordinals may mean another one in each. */
struct gpu {
    uint8_t uuid[16];
    int ordinal;
};

/* What some processes hold at one place. A sum means something if all of it was there at once, on one GPU. */
struct amount {
    uint64_t bytes, count, largest, current; /* sums; the most of one process; the last one's so far */
    size_t processes, last;                  /* how many, and which one counted last */
    uint64_t latest_start, earliest_end;
    struct gpu gpu;
    bool several_gpus;
};

struct place {
    char *text;
    struct amount held, at_peak;
};

struct merged {
    struct process *process;
    size_t processes;
    struct place *place;
    size_t places;
    struct vt_symbols *symbols; /* one for all: the processes have most of their files in common */
    const struct vt_child *child;
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
    process.start_ns = process.header->start_unix_ns;
    process.end_ns = process.start_ns + model->duration_ns;
    return process;
}

static char *describe(const struct vt_reading *reading, struct vt_symbols *symbols, const struct vt_site *site)
{
    const struct vt_stack_style style = vt_stack_style_for(reading, VT_SHOW_MERGED, NULL);
    char place[PLACE_BYTES];
    struct vt_trace trace;

    if (vt_trace_build(&trace, reading, symbols, &style, site->stack, site->python_stack))
        return NULL;
    vt_format_place(place, sizeof(place), vt_trace_user(&trace));
    vt_trace_free(&trace);
    return strdup(place);
}

static struct gpu gpu_of(const struct vt_reading *reading, int ordinal)
{
    const struct vt_device *device = ordinal >= 0 ? vt_reading_device(reading, (uint64_t)ordinal) : NULL;
    struct gpu gpu = {{0}, ordinal};

    if (device)
        memcpy(gpu.uuid, device->uuid, sizeof(gpu.uuid));
    return gpu;
}

static bool is_same_gpu(const struct gpu *a, const struct gpu *b)
{
    static const uint8_t unknown[16];

    if (!memcmp(a->uuid, unknown, sizeof(unknown)))
        return a->ordinal == b->ordinal;
    return !memcmp(a->uuid, b->uuid, sizeof(a->uuid));
}

static void add_amount(struct amount *amount, const struct process *process, size_t index, const struct gpu *gpu,
                       uint64_t bytes, uint64_t count)
{
    bool first = !amount->processes;

    if (!bytes)
        return;
    if (first || amount->last != index) {
        amount->processes++;
        amount->last = index;
        amount->current = 0;
    }
    if (first || process->start_ns > amount->latest_start)
        amount->latest_start = process->start_ns;
    if (first || process->end_ns < amount->earliest_end)
        amount->earliest_end = process->end_ns;
    if (first)
        amount->gpu = *gpu;
    amount->several_gpus |= !is_same_gpu(&amount->gpu, gpu);
    amount->bytes += bytes;
    amount->count += count;
    amount->current += bytes;
    if (amount->current > amount->largest)
        amount->largest = amount->current;
}

/* The place with this text, made if there is none; takes `text` over. NULL: out of memory. */
static struct place *place_of(struct merged *merged, char *text)
{
    struct place *grown;

    for (size_t i = 0; text && i < merged->places; i++)
        if (!strcmp(merged->place[i].text, text)) {
            free(text);
            return &merged->place[i];
        }
    grown = text ? realloc(merged->place, (merged->places + 1) * sizeof(*grown)) : NULL;
    if (!grown) {
        free(text);
        return NULL;
    }
    merged->place = grown;
    grown[merged->places] = (struct place){.text = text};
    return &grown[merged->places++];
}

static int add_sites(struct merged *merged, struct vt_reading *reading, const struct vt_model *model, size_t index)
{
    const struct process *process = &merged->process[index];
    uint32_t left = SITES_PER_PROCESS;

    for (uint32_t i = 0; i < model->site_count && left; i++) {
        const struct vt_site_row *site = &model->sites[i];
        struct gpu gpu = gpu_of(reading, site->record->device);
        struct place *place;

        if ((!site->live_bytes && !site->at_peak_bytes) || site->record->level != VT_LEVEL_DRIVER ||
            !is_device_memory(site->record->kind))
            continue;
        left--;
        place = place_of(merged, describe(reading, merged->symbols, site->record));
        if (!place)
            return -ENOMEM;
        add_amount(&place->held, process, index, &gpu, site->live_bytes, site->live_count);
        add_amount(&place->at_peak, process, index, &gpu, site->at_peak_bytes, site->at_peak_count);
    }
    return 0;
}

/* Notes the first loud finding: "leak (likely): ..." */
static int add_finding(struct merged *merged, struct vt_model *model, struct process *process)
{
    struct vt_findings findings;
    int error = vt_findings_build(&findings, model, merged->symbols, NULL);

    if (error)
        return error;
    for (uint32_t i = 0; i < findings.count && !process->finding && !error; i++) {
        const struct vt_finding *f = &findings.list[i];

        if ((vt_finding_is_loud(f) || model->missing[0]) &&
            asprintf(&process->finding, "%s (%s): %s", vt_family_name(f->family), vt_confidence_name(f->confidence),
                     f->title) < 0) {
            process->finding = NULL;
            error = -ENOMEM;
        }
    }
    vt_findings_free(&findings);
    return error;
}

static int add_process(struct merged *merged, struct vt_reading *reading)
{
    struct process *process = &merged->process[merged->processes];
    struct vt_model model;
    char name[33];
    int error = vt_model_build(&model, reading, choose_moment(reading, name)), status = 0;
    bool known;

    if (error)
        return error;
    *process = summarize(reading, &model);
    known = vt_child_status(merged->child, process->header->pid, &status);
    vt_model_end_words(process->words, &model, known, status);
    merged->processes++;
    error = add_finding(merged, &model, process);
    if (!error)
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

static bool adds_up(const struct amount *amount)
{
    return !amount->several_gpus && (amount->processes == 1 || amount->latest_start < amount->earliest_end);
}

static uint64_t shown(const struct amount *amount, bool at_peak)
{
    return adds_up(amount) && !(at_peak && amount->processes > 1) ? amount->bytes : amount->largest;
}

static int more_held(const void *a, const void *b)
{
    uint64_t x = shown(&((const struct place *)a)->held, false), y = shown(&((const struct place *)b)->held, false);

    return x < y ? 1 : x > y ? -1 : 0;
}

static int more_at_peak(const void *a, const void *b)
{
    uint64_t x = shown(&((const struct place *)a)->at_peak, true), y = shown(&((const struct place *)b)->at_peak, true);

    return x < y ? 1 : x > y ? -1 : 0;
}

static void write_process(struct vt_out *out, const struct process *process)
{
    char peak[VT_FORMAT_BYTES], held[VT_FORMAT_BYTES];

    vt_out_text(out, "  ");
    if (process->header->rank >= 0)
        vt_out_format(out, "rank %-4d ", process->header->rank);
    vt_out_format(out, "pid %-8d peak %s, held %s ", process->header->pid, vt_format_bytes(peak, process->peak),
                  vt_format_bytes(held, process->held));
    vt_out_colour(out, process->oom ? VT_RED : VT_PLAIN);
    vt_out_text(out, process->oom                         ? "when it ran out of memory"
                     : process->end == VT_PROCESS_RUNNING ? "so far"
                                                          : "at its end");
    vt_out_colour(out, VT_PLAIN);
    vt_out_format(out, ", %s: ", process->words);
    vt_out_name(out, process->header->program, strlen(process->header->program), 40);
    vt_out_text(out, "\n");
    if (process->finding) {
        vt_out_text(out, "      ");
        vt_out_name(out, process->finding, strlen(process->finding), 300);
        vt_out_text(out, "\n");
    }
}

static void write_place(struct vt_out *out, const struct place *place, bool at_peak)
{
    const struct amount *amount = at_peak ? &place->at_peak : &place->held;
    uint64_t bytes = shown(amount, at_peak);
    char text[VT_FORMAT_BYTES];

    vt_out_format(out, "  %10s ", vt_format_bytes(text, bytes));
    if (bytes == amount->bytes)
        vt_out_format(out, "in %llu, %zu process%s  ", (unsigned long long)amount->count, amount->processes,
                      amount->processes == 1 ? "" : "es");
    else
        vt_out_format(out, "at most in one of %zu processes  ", amount->processes);
    vt_out_name(out, place->text, strlen(place->text), 80);
    vt_out_text(out, "\n");
}

/* If none holds anything any more, its peak says most. */
static void write_places(struct vt_out *out, struct merged *merged)
{
    bool at_peak = true, sums = true;
    size_t count = 0;

    for (size_t i = 0; i < merged->processes; i++)
        at_peak &= !merged->process[i].held;
    if (merged->places)
        qsort(merged->place, merged->places, sizeof(*merged->place), at_peak ? more_at_peak : more_held);
    while (count < merged->places &&
           shown(at_peak ? &merged->place[count].at_peak : &merged->place[count].held, at_peak))
        count++;
    for (size_t i = 0; i < count && !at_peak; i++)
        sums &= adds_up(&merged->place[i].held);
    if (!count)
        return;
    vt_out_format(out, PREFIX "what held it, %s\n",
                  at_peak ? "each at its own peak"
                  : sums  ? "over all of them"
                          : "over those that ran at the same time on the same GPU");
    for (size_t i = 0; i < count && i < PLACE_LINES; i++)
        write_place(out, &merged->place[i], at_peak);
    if (count > PLACE_LINES)
        vt_out_format(out, "  %zu more\n", count - PLACE_LINES);
}

static int write_merged(struct merged *merged, const char *directory)
{
    size_t ooms = 0;
    struct vt_out out;

    for (size_t i = 0; i < merged->processes; i++)
        ooms += merged->process[i].oom;
    qsort(merged->process, merged->processes, sizeof(*merged->process), largest_process);

    vt_out_open(&out, STDERR_FILENO, vt_wants_colour(STDERR_FILENO));
    vt_out_format(&out, PREFIX "%zu processes used the GPU", merged->processes);
    if (ooms)
        vt_out_format(&out, "; %zu ran out of memory", ooms);
    vt_out_text(&out, "\n");
    for (size_t i = 0; i < merged->processes && i < PROCESS_LINES; i++)
        write_process(&out, &merged->process[i]);
    if (merged->processes > PROCESS_LINES)
        vt_out_format(&out, "  %zu more\n", merged->processes - PROCESS_LINES);
    write_places(&out, merged);
    vt_out_text(&out, PREFIX "next: vramtrack report --all ");
    vt_out_word(&out, directory, strlen(directory));
    vt_out_text(&out, "\n");
    return vt_out_close(&out);
}

int vt_merged_write(struct vt_reading *const *readings, size_t count, const char *directory,
                    const struct vt_child *child)
{
    struct merged merged = {
        .process = calloc(count, sizeof(struct process)), .symbols = vt_symbols_open(), .child = child};
    int error = merged.process && merged.symbols ? 0 : -ENOMEM;

    vt_progress_watch(merged.symbols);
    for (size_t i = 0; i < count && !error; i++)
        error = add_process(&merged, readings[i]);
    vt_progress_watch(NULL);
    vt_progress_end();
    if (!error)
        error = write_merged(&merged, directory);
    for (size_t i = 0; i < merged.places; i++)
        free(merged.place[i].text);
    for (size_t i = 0; i < merged.processes; i++)
        free(merged.process[i].finding);
    if (merged.symbols)
        vt_symbols_close(merged.symbols);
    free(merged.place);
    free(merged.process);
    return error;
}
