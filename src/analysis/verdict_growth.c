/*
 * The verdict that the card filled up with what is allocated again and again and kept.
 *
 * Places are judged as in findings_growth.c, but as of the failure: against steps, backward passes, or minutes. Where there
 * is none of these, a full card is reason enough to look closer: whatever else the program did, each turn of its loop
 * allocated something and freed something, and a place that kept something in turn after turn, from its beginning to the
 * failure, is why. A loader of weights has no such turns (it frees nothing), and what PyTorch's modules hold is left out.
 * Where no events were kept, a steady rate in time beside memory that comes and goes stands in.
 */
#include <stdlib.h>
#include <string.h>

#include "analysis/account.h"
#include "analysis/category.h"
#include "analysis/growth_rules.h"
#include "analysis/verdict.h"

#define TURNS_MIN 8     /* allocations that were kept, and others that were freed, which make a loop */
#define SPAN_PART 4     /* of the time of growth: others came and went from its first such part until its last */
#define LATE_PART 8     /* of the steps: what grew went on into the last such part, */
#define LATE_STEPS 2    /* or into the last so many; the step that failed may not have come as far as the place */
#define LEFT_PART 8     /* of the live bytes, so much was there at half the time: else they came at once and late */
#define KEPT_PERCENT 75 /* of its steps: a place that freed nothing has as many live allocations; a few may make none */

/* What became more, row by row. */
struct growing {
    bool rows[VT_GROWTH_ROWS];
    double per_tick[VT_GROWTH_ROWS];
    uint64_t bytes[VT_GROWTH_ROWS];
    uint64_t sum;
    bool tensors; /* else all of it is the program's own driver memory */
    enum vt_clock clock;
};

/* By how much a place had grown with the steps, until the last ones; 0: it had not. */
static uint64_t grown(const struct vt_model *m, const struct vt_site_row *row, uint64_t steps)
{
    uint64_t half_ns = vt_model_step_end(m->reading, steps / 2 - 1), end, before,
             late = steps - 1 - (steps / LATE_PART > LATE_STEPS ? steps / LATE_PART : LATE_STEPS);
    enum vt_category category;

    if (row->record->level != VT_LEVEL_TENSOR || row->live_count < VT_GROWTH_COUNT || row->growth.bytes <= 0 ||
        row->growth.allocs < VT_GROWTH_COUNT || !row->growth.monotonic || row->growth.steps < VT_GROWTH_COUNT ||
        vt_model_last_ns(m, row) <= vt_model_step_end(m->reading, late))
        return 0;
    category = vt_category_of(m, row, NULL).main;
    if (category == VT_CATEGORY_PARAMETERS || category == VT_CATEGORY_OPTIMIZER)
        return 0;
    if (vt_model_never_freed(row))
        return row->live_count >= row->growth.steps * KEPT_PERCENT / 100 && row->growth.steps > steps / 2
                   ? row->live_bytes
                   : 0;
    before = vt_model_live_at(row->record, half_ns, m->moment_ns, row->live_bytes, &end);
    return end < m->moment_ns && before >= row->live_bytes / LEFT_PART ? (uint64_t)row->growth.bytes : 0;
}

/* Was other memory allocated and freed all the while that a row grew? */
static bool others_came_and_went(const struct vt_model *m, const struct vt_site_row *row)
{
    uint64_t first = row->record->first_ns, span = m->moment_ns > first ? m->moment_ns - first : 0, turns = 0;
    uint32_t i;

    for (i = 0; i < m->site_count; i++) {
        const struct vt_site *other = m->sites[i].record;

        if (&m->sites[i] != row && other->first_ns <= first + span / SPAN_PART &&
            vt_model_last_ns(m, &m->sites[i]) >= m->moment_ns - span / SPAN_PART && vt_kind_is_memory(other->kind))
            turns += other->free_calls;
    }
    return turns >= TURNS_MIN;
}

/* Without any clock: made at a steady rate, nothing of it freed, beside memory that came and went. */
static bool grows_in_turns(const struct vt_finding_builder *b, const struct vt_births *births, uint32_t i)
{
    const struct vt_site_row *row = &births->model->sites[i];

    return births->clock == VT_CLOCK_TIME && row->live_count >= TURNS_MIN &&
           vt_growth_is_candidate(births->model, row) && !vt_growth_is_meant(b, row, false) &&
           vt_births_known(births, i) && vt_model_never_freed(row) &&
           vt_births_are_steady(births, i, vt_births_of(births, i)->time_ns) &&
           others_came_and_went(births->model, row);
}

static void add(struct growing *g, const struct vt_model *m, uint32_t i, uint64_t bytes, double per_tick)
{
    g->rows[i] = true;
    g->bytes[i] = bytes;
    g->per_tick[i] = per_tick;
    g->sum += bytes;
    g->tensors |= m->sites[i].record->level == VT_LEVEL_TENSOR;
}

/* Fills g from what is thought of each row of the device. */
static void take(struct vt_finding_builder *b, const struct vt_births *births, const struct vt_opinion *opinions,
                 int device, struct growing *g)
{
    const struct vt_model *m = births->model;
    uint64_t steps = vt_model_steps_until(m->reading, m->moment_ns), bytes;
    uint32_t i;

    for (i = 0; i < births->rows; i++) {
        const struct vt_site_row *row = &m->sites[i];

        if (row->record->device != device)
            continue;
        if (opinions[i].grows && opinions[i].confidence == VT_LIKELY)
            add(g, m, i, row->live_bytes, opinions[i].per_tick);
        else if (steps >= VT_GROWTH_TICKS && (bytes = grown(m, row, steps)))
            add(g, m, i, bytes, row->growth.bytes_per_step);
        else if (grows_in_turns(b, births, i))
            add(g, m, i, row->live_bytes, 0);
    }
}

/* "Allocations of 10.00 GiB ..." by what the growth was measured against. */
static struct vt_finding *title(struct vt_finding_builder *b, const struct vt_refusal *r, const struct growing *g,
                                uint64_t all)
{
    static const char *const ways[] = {[VT_CLOCK_STEPS] = "step by step",
                                       [VT_CLOCK_PASSES] = "pass by pass",
                                       [VT_CLOCK_TIME] = "bit by bit",
                                       [VT_CLOCK_ROUNDS] = "round by round"};
    uint64_t steps = vt_model_steps_until(r->then->reading, r->then->moment_ns);
    char text[VT_FORMAT_BYTES], of[VT_FORMAT_BYTES];

    vt_format_bytes(text, g->sum);
    vt_format_bytes(of, all);
    if (g->tensors && g->clock == VT_CLOCK_STEPS)
        return vt_new_finding(b, VT_FAMILY_GROWTH, VT_LIKELY,
                              "GPU %d filled up step by step: %s of the %s in tensors came in %llu steps and stayed.",
                              r->failure->device, text, of, (unsigned long long)steps);
    return vt_new_finding(b, g->tensors ? VT_FAMILY_GROWTH : VT_FAMILY_LEAK, VT_LIKELY,
                          "GPU %d filled up %s: %s of the %s that %s held were allocated again and again, and kept.",
                          r->failure->device, ways[g->clock], text, of, g->tensors ? "tensors" : "this process");
}

/* One line of evidence per place. */
static void show(struct vt_finding_builder *b, struct vt_finding *finding, const struct vt_row_places *places,
                 const struct growing *g)
{
    static const char *const each[] = {[VT_CLOCK_STEPS] = "step",
                                       [VT_CLOCK_PASSES] = "backward pass",
                                       [VT_CLOCK_TIME] = "",
                                       [VT_CLOCK_ROUNDS] = "round"};
    uint32_t count, i, k;
    struct vt_place_sum *list = vt_row_places_sum(b, places, g->rows, &count);
    char name[VT_PLACE_NAME], text[VT_FORMAT_BYTES], step[VT_FORMAT_BYTES];
    double per_tick;

    for (k = 0; k < count && k < VT_SHOWN_MAX; k++) {
        for (per_tick = 0, i = 0; i < places->rows; i++)
            if (g->rows[i] && vt_row_place(places, i)->name == list[k].place->name)
                per_tick += g->per_tick[i];
        if (per_tick >= 1 && per_tick < 9e18 && *each[g->clock])
            vt_add_evidence(b, finding, "%s in %llu by %s: %s more per %s.", vt_format_bytes(text, list[k].bytes),
                            (unsigned long long)list[k].count, vt_place_name(name, list[k].place),
                            vt_format_bytes(step, (uint64_t)per_tick), each[g->clock]);
        else
            vt_show_place(b, finding, &list[k]);
    }
    for (i = 0; i < places->rows && finding->site_count < VT_HOLDERS_MAX; i++)
        if (g->rows[i])
            vt_add_site(b, finding, places->model->sites[i].index);
    free(list);
}

static struct vt_finding *explain(struct vt_finding_builder *b, const struct vt_refusal *r,
                                  const struct vt_row_places *places, const struct growing *g)
{
    uint64_t all = r->device->tensors + (g->tensors ? 0 : r->device->application);
    struct vt_finding *finding;

    /* It explains the failure if it is most of what this process held. */
    if (g->sum < VT_WORTH || g->sum < all / 2)
        return NULL;
    finding = title(b, r, g, all > g->sum ? all : g->sum);
    show(b, finding, places, g);
    if (g->tensors)
        vt_add_advice(
            b, finding, g->sum, "%s",
            r->frameworks == 1u << VT_FRAMEWORK_TENSORFLOW
                ? "Let go of what each step keeps: losses as numbers (float()), lists and dicts of outputs emptied or "
                  "moved to the host (.numpy()), no persistent GradientTape."
                : "Let go of what each step keeps: losses as numbers (.item()), states without their graph "
                  "(.detach()), "
                  "validation under torch.no_grad(), lists and dicts of outputs emptied or moved to the CPU.");
    else
        vt_add_advice(b, finding, g->sum, "Free what these places allocate in each round, on error paths too.");
    return finding;
}

/* As of the failure's own moment. */
static struct vt_finding *at_failure(struct vt_finding_builder *b, const struct vt_refusal *r)
{
    struct vt_opinion opinions[VT_GROWTH_ROWS] = {{0}};
    struct growing growing = {.sum = 0};
    struct vt_model *now = b->model, *then = (struct vt_model *)r->then; /* is looked at, and not changed */
    struct vt_finding *finding = NULL;
    struct vt_row_places places;
    struct vt_births births;
    bool wanted[VT_GROWTH_ROWS];
    uint32_t count, i;

    count = then->site_count < VT_GROWTH_ROWS ? then->site_count : VT_GROWTH_ROWS;
    for (i = 0; i < count; i++)
        wanted[i] = vt_growth_is_candidate(then, &then->sites[i]);
    b->model = then;
    if (vt_births_take(&births, then, count, VT_GROWTH_TICKS) || vt_births_by_rounds(&births, TURNS_MIN)) {
        b->no_memory = true;
    } else {
        if (vt_row_places_build(b, &places, wanted, count)) {
            vt_growth_judge(b, &births, &places, opinions);
            growing.clock = births.clock;
            take(b, &births, opinions, r->failure->device, &growing);
            finding = explain(b, r, &places, &growing);
        }
        vt_row_places_free(&places);
    }
    vt_births_free(&births);
    b->model = now;
    return finding;
}

/* The first moment of an out-of-memory, if it was before the failure's own; VT_NONE: it was not. */
static uint64_t first_time(const struct vt_refusal *r)
{
    const struct vt_reading *reading = r->then->reading;
    uint64_t i, count = vt_reading_count(reading, VT_MOMENTS), best = VT_NONE, best_ns = r->then->moment_ns;

    for (i = 0; i < count; i++) {
        const struct vt_moment *moment = vt_reading_moment(reading, i);

        if (moment && moment->kind == VT_MOMENT_OOM && moment->name[0] && moment->time_ns < best_ns) {
            best = i;
            best_ns = moment->time_ns;
        }
    }
    return best;
}

/* A program that goes on when it gets no memory fails again and again, and nothing grows any more: what filled the card is
 * to be seen at the first time. */
static struct vt_finding *at_first(struct vt_finding_builder *b, const struct vt_refusal *r)
{
    uint64_t index = first_time(r);
    const struct vt_moment *moment = index == VT_NONE ? NULL : vt_reading_moment(r->then->reading, index);
    char name[sizeof moment->name + 1] = "", time[VT_FORMAT_BYTES];
    struct vt_refusal first = *r;
    struct vt_finding *finding;

    if (!moment)
        return NULL;
    memcpy(name, moment->name, sizeof moment->name);
    if (vt_model_build(&first.built, r->then->reading, name)) {
        b->no_memory = true;
        return NULL;
    }
    vt_account_add_parts(&first.built, b->symbols);
    first.then = &first.built;
    first.device = vt_refusal_device(first.then, r->failure);
    finding = first.device ? at_failure(b, &first) : NULL;
    if (finding)
        vt_add_evidence(b, finding, "As of the first time that memory ran out (%s, %s); the program went on.", name,
                        vt_format_seconds(time, moment->time_ns));
    vt_model_free(&first.built);
    return finding;
}

struct vt_finding *vt_verdict_growth(struct vt_finding_builder *b, const struct vt_refusal *r)
{
    struct vt_finding *finding;

    if (!r->then || !r->device)
        return NULL;
    finding = at_failure(b, r);
    return finding ? finding : at_first(b, r);
}
