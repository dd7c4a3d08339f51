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
#include "analysis/job.h"
#include "cli/cli.h"
#include "cli/progress.h"
#include "recording/reader.h"
#include "views/job.h"
#include "views/out.h"

#define PLACE_BYTES 512
#define PROCESS_LINES 5 /* two lines each at most */
#define PLACE_LINES 6
#define SITES_PER_PROCESS 64 /* largest first: the rest can't reach the top of the merged list by much */
#define FINDING_LINES 3      /* of what concerns them all */
#define PLACES_MAX 4096      /* looked at: a recording is not trusted */
#define PREFIX "vramtrack: "

/* When a process ran. What else is known of it has the job. */
struct process {
    uint64_t start_ns, end_ns;
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

struct vt_merged {
    struct process *process;
    size_t processes;
    struct place *place;
    size_t places;
    struct vt_job job;
    struct vt_symbols *symbols; /* one for all: the processes have most of their files in common */
    const struct vt_child *child;
};

static bool is_device_memory(unsigned kind)
{
    return vt_kind_is_memory(kind) && vt_class_of(kind) != VT_CLASS_HOST;
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

/* The place with this text, made if there is none; takes `text` over. NULL: out of memory, or there are too many. */
static struct place *place_of(struct vt_merged *merged, char *text)
{
    struct place *grown;

    for (size_t i = 0; text && i < merged->places; i++) /* linear: they are few */
        if (!strcmp(merged->place[i].text, text)) {
            free(text);
            return &merged->place[i];
        }
    grown = text && merged->places < PLACES_MAX ? realloc(merged->place, (merged->places + 1) * sizeof(*grown)) : NULL;
    if (!grown) {
        free(text);
        return NULL;
    }
    merged->place = grown;
    grown[merged->places] = (struct place){.text = text};
    return &grown[merged->places++];
}

static int add_sites(struct vt_merged *merged, struct vt_reading *reading, const struct vt_model *model, size_t index)
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
        if (!place && merged->places < PLACES_MAX)
            return -ENOMEM;
        if (!place)
            continue;
        add_amount(&place->held, process, index, &gpu, site->live_bytes, site->live_count);
        add_amount(&place->at_peak, process, index, &gpu, site->at_peak_bytes, site->at_peak_count);
    }
    return 0;
}

static int add_process(struct vt_merged *merged, struct vt_reading *reading, struct vt_analysis *analysis)
{
    struct process *grown = realloc(merged->process, (merged->processes + 1) * sizeof(*grown)), *process;
    const struct vt_header *header = vt_reading_header(reading);
    int error, status = 0;
    bool known;

    if (!grown)
        return -ENOMEM;
    merged->process = grown;
    process = &grown[merged->processes++];
    process->start_ns = header->start_unix_ns;
    process->end_ns = process->start_ns + analysis->model.duration_ns;
    known = vt_child_status(merged->child, header->pid, &status);
    error = add_sites(merged, reading, &analysis->model, merged->processes - 1);
    return error ? error : vt_job_add(&merged->job, analysis, vt_reading_name(reading), known, status);
}

int vt_merged_add(struct vt_merged *merged, struct vt_reading *reading)
{
    struct vt_analysis analysis;
    char name[33];
    int error = vt_analysis_open(&analysis, reading, vt_job_moment(reading, name), true, merged->symbols, NULL);

    if (error)
        return error;
    error = add_process(merged, reading, &analysis);
    vt_analysis_close(&analysis);
    vt_symbols_forget(merged->symbols, reading);
    return error;
}

/* Out of memory first, then whoever was killed, then by bytes. */
static int most_telling_first(const void *a, const void *b)
{
    const struct vt_job_rank *x = *(const struct vt_job_rank *const *)a, *y = *(const struct vt_job_rank *const *)b;
    bool x_killed = x->end == VT_PROCESS_KILLED, y_killed = y->end == VT_PROCESS_KILLED;

    if (x->oom != y->oom)
        return x->oom ? -1 : 1;
    if (x_killed != y_killed)
        return x_killed ? -1 : 1;
    if (x->peak != y->peak)
        return x->peak < y->peak ? 1 : -1;
    return x < y ? -1 : x > y;
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

static void write_process(struct vt_out *out, const struct vt_job_rank *process)
{
    char peak[VT_FORMAT_BYTES], held[VT_FORMAT_BYTES];

    vt_out_text(out, "  ");
    if (process->rank >= 0)
        vt_out_format(out, "rank %-4d ", process->rank);
    vt_out_format(out, "pid %-8d peak %s, held %s ", process->pid, vt_format_bytes(peak, process->peak),
                  vt_format_bytes(held, process->live));
    vt_out_colour(out, process->oom ? VT_RED : VT_PLAIN);
    vt_out_text(out, process->oom                         ? "when it ran out of memory"
                     : process->end == VT_PROCESS_RUNNING ? "so far"
                                                          : "at its end");
    vt_out_colour(out, VT_PLAIN);
    vt_out_format(out, ", %s: ", process->words);
    vt_out_name(out, process->program, strlen(process->program), 40);
    vt_out_text(out, "\n");
    if (process->finding) {
        vt_out_text(out, "      ");
        vt_out_name(out, process->finding, strlen(process->finding), 300);
        vt_out_text(out, "\n");
    }
}

/* The processes that are no helpers, and in one line all others. Returns 0 or -ENOMEM. */
static int write_processes(struct vt_out *out, const struct vt_job *job)
{
    const struct vt_job_rank **list = calloc(job->process_count + 1u, sizeof(*list));
    char most[VT_FORMAT_BYTES];
    uint64_t bytes = 0;

    if (!list)
        return -ENOMEM;
    for (uint32_t i = 0; i < job->process_count; i++)
        list[i] = &job->ranks[i];
    qsort(list, job->process_count, sizeof(*list), most_telling_first);
    for (uint32_t i = 0; i < job->process_count && i < PROCESS_LINES; i++)
        write_process(out, list[i]);
    for (uint32_t i = job->process_count; i < job->rank_count; i++)
        bytes = job->ranks[i].peak > bytes ? job->ranks[i].peak : bytes;
    if (job->process_count > PROCESS_LINES)
        vt_out_format(out, "  %u more\n", job->process_count - PROCESS_LINES);
    if (job->helper_count)
        vt_out_format(out, "  %u helper process%s, at most %s each\n", job->helper_count,
                      job->helper_count == 1 ? "" : "es", vt_format_bytes(most, bytes));
    free(list);
    return 0;
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
static void write_places(struct vt_out *out, struct vt_merged *merged)
{
    bool at_peak = true, sums = true;
    size_t count = 0;

    for (uint32_t i = 0; i < merged->job.rank_count; i++)
        at_peak &= !merged->job.ranks[i].live;
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

/* What ranks differ in is news; that processes without ranks differ is not. */
static bool has_ranks(const struct vt_merged *merged)
{
    for (uint32_t i = 0; i < merged->job.rank_count; i++)
        if (merged->job.ranks[i].rank >= 0)
            return true;
    return false;
}

int vt_merged_write(struct vt_merged *merged, const char *directory)
{
    int error = vt_job_finish(&merged->job);
    struct vt_out out;
    uint32_t ooms = 0;

    if (error)
        return error;
    for (uint32_t i = 0; i < merged->job.rank_count; i++)
        ooms += merged->job.ranks[i].oom;
    vt_out_open(&out, STDERR_FILENO, vt_wants_colour(STDERR_FILENO));
    vt_out_format(&out, PREFIX "%zu processes used the GPU", merged->processes);
    if (ooms)
        vt_out_format(&out, "; %u ran out of memory", ooms);
    vt_out_text(&out, "\n");
    if (has_ranks(merged))
        vt_view_job_findings(&out, &merged->job, PREFIX, "  ", 0, FINDING_LINES, true);
    error = write_processes(&out, &merged->job);
    write_places(&out, merged);
    vt_out_text(&out, PREFIX "next: vramtrack report ");
    vt_out_word(&out, directory, strlen(directory));
    vt_out_text(&out, "\n");
    vt_out_close(&out);
    return error ? error : out.error;
}

struct vt_merged *vt_merged_open(const struct vt_child *child)
{
    struct vt_merged *merged = calloc(1, sizeof(*merged));

    if (!merged)
        return NULL;
    merged->child = child;
    merged->symbols = vt_symbols_open();
    if (!merged->symbols || vt_job_open(&merged->job, false)) {
        vt_symbols_close(merged->symbols);
        free(merged);
        return NULL;
    }
    merged->job.at_moment = true; /* no table is shown: another look at each recording would be for nothing */
    return merged;
}

struct vt_symbols *vt_merged_symbols(const struct vt_merged *merged)
{
    return merged->symbols;
}

void vt_merged_close(struct vt_merged *merged)
{
    if (!merged)
        return;
    for (size_t i = 0; i < merged->places; i++)
        free(merged->place[i].text);
    vt_job_free(&merged->job);
    vt_symbols_close(merged->symbols);
    free(merged->place);
    free(merged->process);
    free(merged);
}
